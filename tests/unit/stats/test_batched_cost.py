import numpy as np
import pytest
from scipy.optimize import nnls

from regimescope.stats import batched_cost as module
from regimescope.stats.batched_cost import (
    CostRule,
    batched_cost,
    huber,
    huber_weight,
    nonnegative_solve,
)
from regimescope.stats.curve import basis


def reference_cost(A, labels, scale, min_offset, kappa):
    """The specification's COST, one set at a time with scipy's solver."""
    keep = labels == 0
    intervals = range(1, labels.max() + 1)
    w = keep.astype(float)
    for _ in range(3):
        root = np.sqrt(w)
        theta = nnls(A * root[:, None], root)[0]
        z = -np.log(np.maximum(A @ theta, 1e-12))
        w = np.minimum(1, 1.5 * scale / np.maximum(np.abs(z), 1e-300)) * keep
    spread = np.where(keep, scale, kappa * scale)
    for _ in range(2):
        shift = np.zeros(len(z))
        for r in intervals:
            shift[labels == r] = np.median(z[labels == r])
        w = np.minimum(1, 1.5 * spread / np.maximum(np.abs(z - shift), 1e-300))
        w = np.where(keep, w, w / kappa**2)
        root = np.sqrt(w)
        theta = nnls(A * (np.exp(shift) * root)[:, None], root)[0]
        z = -np.log(np.maximum(A @ theta, 1e-12))
    shift = np.zeros(len(z))
    offsets = []
    for r in intervals:
        offsets.append(np.median(z[labels == r]))
        shift[labels == r] = offsets[-1]
    if any(o < min_offset for o in offsets):
        return np.inf, theta, offsets
    u = np.abs((z - shift) / spread)
    loss = np.where(u <= 1.5, u**2 / 2, 1.5 * u - 1.125)
    return loss.sum() + (~keep).sum() * np.log(kappa), theta, offsets


def a_sweep(rng, n=14, degree=2):
    steps = np.linspace(64, 1024, n)
    T = 0.1 + 1.2 * steps / 1024 + 0.4 * (steps / 1024) ** 2
    y = np.log(T) + 0.03 * rng.standard_normal(n)
    y[5:8] += np.log(3)
    return basis(steps, steps[-1], degree) / np.exp(y)[:, None]


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_every_row_costs_what_the_specification_says(degree):
    rng = np.random.default_rng(4)
    A = a_sweep(rng, degree=degree)
    labels = np.zeros((40, 14), dtype=np.int8)
    for row in labels[1:]:
        a, b, c, d = np.sort(rng.choice(15, 4, replace=False))
        row[a:b] = 1
        row[c : min(d, c + 3)] = 2
    rule = CostRule(min_offset=-9.0, min_outside=0)
    found = batched_cost(A[None], labels, np.array([0.03]), rule)
    for k, row in enumerate(labels):
        cost, theta, offsets = reference_cost(A, row, 0.03, -9.0, 1.5)
        assert found.cost[0, k] == pytest.approx(cost, rel=1e-5)
        assert A @ found.theta[0, k] == pytest.approx(A @ theta, rel=1e-5)
        assert found.offsets[0, k, : len(offsets)] == pytest.approx(offsets, abs=1e-5)


def test_several_responses_are_fitted_as_if_alone():
    rng = np.random.default_rng(1)
    both = np.stack([a_sweep(rng), a_sweep(rng)])
    labels = np.zeros((3, 14), dtype=np.int8)
    labels[1, 5:8] = 1
    labels[2, 0:2] = 1
    scales = np.array([0.03, 0.05])
    rule = CostRule(0.0, 4)
    together = batched_cost(both, labels, scales, rule)
    for k in range(2):
        alone = batched_cost(both[k : k + 1], labels, scales[k : k + 1], rule)
        assert together.cost[k] == pytest.approx(alone.cost[0])


def test_result_does_not_depend_on_the_chunk_size(monkeypatch):
    rng = np.random.default_rng(2)
    A = a_sweep(rng)[None]
    labels = np.zeros((9, 14), dtype=np.int8)
    for k, row in enumerate(labels):
        row[k : k + 2] = 1
    labels[8, 0] = 2
    whole = batched_cost(A, labels, np.array([0.03]), CostRule(0.0, 4))
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 28)
    pieces = batched_cost(A, labels, np.array([0.03]), CostRule(0.0, 4))
    assert pieces.cost == pytest.approx(whole.cost)
    assert pieces.offsets == pytest.approx(whole.offsets)


def test_sets_that_are_not_allowed_cost_infinity():
    A = a_sweep(np.random.default_rng(3))[None]
    labels = np.zeros((3, 14), dtype=np.int8)
    labels[0, 5:8] = 1  # three times slower: allowed
    labels[1, 10:12] = 1  # not slower: under the least offset
    labels[2, 1:] = 1  # leaves one point outside
    cost = batched_cost(A, labels, np.array([0.03]), CostRule(np.log(1.25), 4)).cost[0]
    assert np.isfinite(cost[0])
    assert np.isinf(cost[1:]).all()


def test_each_inside_point_is_charged_for_its_freedom():
    """Without the charge a noisier inside would be free and nulls would look slow."""
    steps = np.arange(1.0, 11.0)
    A = basis(steps, 10.0, 1) / (1 + steps)[:, None]
    A[3:6] /= 2  # exactly twice as slow: no residual is left anywhere
    labels = np.zeros((1, 10), dtype=np.int8)
    labels[0, 3:6] = 1
    cost = batched_cost(A[None], labels, np.array([0.02]), CostRule(0.0, 3)).cost[0, 0]
    assert cost == pytest.approx(3 * np.log(1.5), abs=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_small_problems_have_the_solution_of_the_iterative_solver(p):
    rng = np.random.default_rng(p)
    first, second = np.triu_indices(p)
    grams, targets, expected = [], [], []
    for _ in range(50):
        M = rng.standard_normal((p + 3, p))
        b = rng.standard_normal(p + 3)
        grams.append((M.T @ M)[first, second])
        targets.append(M.T @ b)
        expected.append(nnls(M, b)[0])
    found = nonnegative_solve(np.array(grams), np.array(targets))
    assert found == pytest.approx(np.array(expected), abs=1e-6)


def test_a_column_of_zeros_gets_no_coefficient():
    gram = np.array([[4.0, 0.0, 0.0]])  # second column zero
    assert nonnegative_solve(gram, np.array([[2.0, 0.0]])).tolist() == [[pytest.approx(0.5), 0.0]]


def test_loss_is_quadratic_then_linear_and_its_weights_agree():
    z = np.array([0.0, 1.0, -1.5, 4.0])
    assert huber(z) == pytest.approx([0.0, 0.5, 1.125, 1.5 * 4 - 1.125])
    assert huber_weight(z) == pytest.approx([1.0, 1.0, 1.0, 1.5 / 4])
