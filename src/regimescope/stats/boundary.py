"""Where slow begins or ends, to one token, by adaptive search (method section 6).

Each query is one trial, labeled slow or normal. The posterior lives on a grid of boundary b and
width W of the transition; the next query is the one from which least uncertainty about b is
expected to remain. Error rates of the labels come from the confirmation: with rates that are
assumed instead, a machine that is slow only sometimes is located wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, expit

from regimescope.stats.arrays import BoolArray, FloatArray, finite_vector

ONSET, RECOVERY = "onset", "recovery"
# Widths of a transition in tokens, and what is believed of them beforehand: most edges are sharp.
WIDTHS = (0, 2, 4, 8, 16, 32, 64)
WIDTH_PRIOR = (0.6, 0.1, 0.08, 0.08, 0.06, 0.04, 0.04)
STEEPNESS = 4.0  # logistic over a width W: 12 to 88 % slow
# A trial of either kind is mislabeled in at least 1 of 50, whatever a dozen trials have shown;
# beyond the upper ends a label says too little about the side that it is on.
FALSE_SLOW_RANGE = (0.02, 0.30)
FALSE_NORMAL_RANGE = (0.02, 0.70)
QUANTILES = (0.3, 0.5, 0.7)  # of b, where queries are sought
LEVEL = 0.95
ZONE_LEVEL = 0.98  # in a transition zone the posterior is overconfident
ZONE_WIDTH = 2.0  # expected width from which an edge is a zone
MOST_TRIALS, MOST_TRIALS_UNSURE = 40, 80  # the second where slow trials often look normal
UNSURE = 0.3  # false-normal rate from which more trials are allowed
CONTRADICTION = float(np.log(19.0))  # odds of 19 : 1, the same as for the 95 % interval


class LabelErrors(NamedTuple):
    """Error rates of the labels, each above 0 and their sum below 1.

    Attributes:
        false_slow: chance that a normal trial is labeled slow, p+.
        false_normal: chance that a slow trial is labeled normal, p-.
    """

    false_slow: float
    false_normal: float


class Bracket(NamedTuple):
    """An interval (low, high] that holds one boundary.

    Attributes:
        low: integer axis value before the boundary.
        high: integer axis value at or after it.
        edge: ``onset`` (b is the first slow value) or ``recovery`` (b is the first normal one).
    """

    low: int
    high: int
    edge: str = ONSET


@dataclass(frozen=True, eq=False)
class Boundary:
    """What the labels so far say about one boundary.

    Attributes:
        bracket: where it was sought.
        estimate: posterior median of b.
        interval: central interval of b at ``level`` as a pair (low, high].
        probability: posterior of b = low + 1 .. high of the bracket, shape (high - low,).
        expected_width: posterior mean of the width of the transition, in tokens.
        level: .95, or .98 in a transition zone.
        p_slow: chance of the label slow at estimate - 1 and at the estimate.
        next_query: axis value to try next; None when done.
        stopped: ``exact`` (the interval has length 1), ``limit`` (trials used up) or None.
        trials: labels used.
        codes: ``transition_zone`` or none.
    """

    bracket: Bracket
    estimate: int
    interval: tuple[int, int]
    probability: FloatArray
    expected_width: float
    level: float
    p_slow: tuple[float, float]
    next_query: int | None
    stopped: str | None
    trials: int
    codes: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether the search has stopped."""
        return self.stopped is not None

    @property
    def exact(self) -> bool:
        """Whether one value is left and the edge is no transition zone."""
        return self.stopped == "exact" and not self.codes


def is_slow(excess: ArrayLike, delta: float) -> BoolArray:
    """Label trials: slow beyond half the log slowdown of the core.

    Args:
        excess: log latency less log expected latency at the same value, shape (N,).
        delta: log slowdown of the core, above 0.

    Raises:
        ValueError: delta not positive.
    """
    if not delta > 0:
        raise ValueError(f"a label needs a positive log slowdown, got {delta}")
    return np.asarray(excess, dtype=np.float64) > delta / 2


def label_errors(control_excess: ArrayLike, core_excess: ArrayLike, delta: float) -> LabelErrors:
    """Error rates of the labels from the trials of the confirmation.

    Args:
        control_excess: excess of fresh trials at the controls, shape (m,).
        core_excess: excess of fresh trials at the core, shape (n,).
        delta: log slowdown of the core.

    Raises:
        ValueError: delta not positive.
    """
    control, core = is_slow(control_excess, delta), is_slow(core_excess, delta)
    return LabelErrors(
        float(np.clip((control.sum() + 0.5) / (control.size + 1), *FALSE_SLOW_RANGE)),
        float(np.clip(((~core).sum() + 0.5) / (core.size + 1), *FALSE_NORMAL_RANGE)),
    )


def locate(
    bracket: tuple[int, int],
    errors: LabelErrors,
    queries: ArrayLike = (),
    slow: ArrayLike = (),
    *,
    edge: str = ONSET,
) -> Boundary:
    """Posterior of a boundary given the labels so far, and what to ask next.

    Args:
        bracket: (low, high], integers; a width of 4096 takes a few milliseconds.
        errors: error rates of the labels, in terms of slow and normal whatever the edge.
        queries: axis values tried, within [low, high], shape (k,).
        slow: label of each, shape (k,).
        edge: ``onset`` or ``recovery``.

    Raises:
        ValueError: an empty bracket, an unknown edge, rates without meaning, or labels that do
            not fit the queries.
    """
    low, high = bracket
    place = _checked_bracket(low, high, edge)
    tried, hit = _checked_labels(place, queries, slow)
    # A recovery is an onset of the complement.
    turned = edge == RECOVERY
    grid = _grid(high - low, _checked_errors(errors, turned))
    joint = _posterior(grid, tried - low, hit != turned)
    marginal = joint.sum(axis=0)
    expected_width = float(joint.sum(axis=1) @ grid.widths)
    level = ZONE_LEVEL if expected_width >= ZONE_WIDTH else LEVEL
    interval = _central(marginal, level)
    estimate = _quantile(marginal, 0.5)
    stopped = _stop_reason(interval, errors, tried.size)
    query = None if stopped else _next_query(grid, joint, marginal)
    return Boundary(
        bracket=place,
        estimate=low + estimate,
        interval=(low + interval[0], low + interval[1]),
        probability=marginal,
        expected_width=expected_width,
        level=level,
        p_slow=_slow_beside(grid, joint, estimate, turned=turned),
        next_query=None if query is None else low + query,
        stopped=stopped,
        trials=tried.size,
        codes=("transition_zone",) if expected_width >= ZONE_WIDTH else (),
    )


def _slow_beside(
    grid: _Grid, joint: FloatArray, estimate: int, *, turned: bool
) -> tuple[float, float]:
    """Chance of a slow trial just before and at the estimate."""
    after = [grid.at(grid.slow, x) for x in (estimate - 1, estimate)]
    before, at = (float((joint * chance).sum()) for chance in after)
    return (1 - before, 1 - at) if turned else (before, at)


class _Grid(NamedTuple):
    """Positions 1..size relative to the low end, widths, and the chance of each label.

    The tables have shape (widths, 2 size + 1); their columns run over the distance x - b from
    size down to -size, so that all b at one x are a slice.
    """

    size: int
    widths: FloatArray
    log_prior: FloatArray
    slow: FloatArray
    log_slow: FloatArray
    log_normal: FloatArray

    def at(self, table: FloatArray, x: int) -> FloatArray:
        """Columns of b = 1..size for a query at x, shape (widths, size)."""
        return table[:, self.size - x + 1 : 2 * self.size - x + 1]


# One search asks for the same grid at every trial; eight searches may run side by side.
@lru_cache(maxsize=8)
def _grid(size: int, rates: LabelErrors) -> _Grid:
    chosen = [i for i, w in enumerate(WIDTHS) if w <= size]
    widths = np.array([WIDTHS[i] for i in chosen], dtype=np.float64)
    prior = np.array([WIDTH_PRIOR[i] for i in chosen])
    distance = np.arange(size, -size - 1, -1)
    rise = np.empty((widths.size, distance.size))
    rise[0] = distance >= 0
    rise[1:] = expit(STEEPNESS * (distance + 0.5) / widths[1:, None])
    slow = rates.false_slow + (1 - sum(rates)) * rise
    return _Grid(size, widths, np.log(prior / prior.sum()), slow, np.log(slow), np.log1p(-slow))


def _posterior(grid: _Grid, tried: FloatArray, slow: BoolArray) -> FloatArray:
    """Joint posterior of (W, b), shape (widths, size)."""
    log_weight = np.repeat(grid.log_prior[:, None], grid.size, axis=1)
    for x, hit in zip(tried.astype(int).tolist(), slow.tolist(), strict=True):
        log_weight += grid.at(grid.log_slow if hit else grid.log_normal, x)
    weight = np.exp(log_weight - log_weight.max())
    joint: FloatArray = weight / weight.sum()
    return joint


def _next_query(grid: _Grid, joint: FloatArray, marginal: FloatArray) -> int:
    """Of four candidates, the query after which the least entropy of b is expected."""
    low, middle, high = (_quantile(marginal, q) for q in QUANTILES)
    # Labels at the ends are known: b lies after the low end and not after the high one.
    candidates = {min(max(x, 1), max(grid.size - 1, 1)) for x in (middle - 1, low, middle, high)}
    best, least = middle, np.inf
    for x in sorted(candidates):
        slow = (joint * grid.at(grid.slow, x)).sum(axis=0)
        normal = marginal - slow
        expected = sum(float(entr(part).sum() - entr(part.sum())) for part in (slow, normal))
        if expected < least - 1e-12:
            best, least = x, expected
    return best


def _quantile(marginal: FloatArray, q: float) -> int:
    """Smallest b, relative to the low end, whose cumulative probability reaches q."""
    # A hair below q, so that rounding of a sum of thousands does not move the answer.
    return int(np.searchsorted(np.cumsum(marginal), q - 1e-12)) + 1


def _central(marginal: FloatArray, level: float) -> tuple[int, int]:
    """Central interval of b as a pair (low, high], relative to the low end."""
    tail = (1 - level) / 2
    first, last = _quantile(marginal, tail), _quantile(marginal, 1 - tail)
    return first - 1, min(last, marginal.size)


def _stop_reason(interval: tuple[int, int], errors: LabelErrors, trials: int) -> str | None:
    if interval[1] - interval[0] == 1:
        return "exact"
    most = MOST_TRIALS_UNSURE if errors.false_normal > UNSURE else MOST_TRIALS
    return "limit" if trials >= most else None


def adjacency_state(slow: ArrayLike, *, expected_slow: bool, errors: LabelErrors) -> str:
    """Judge random trials at one value beside a boundary, which should all bear one label.

    One label that contradicts may be an error of the label; then the value is tried again, until
    the odds that it really lies on the other side are 19 to 1 or the first label is made good.

    Args:
        slow: labels of the trials at this value, in order, shape (k,), k >= 1.
        expected_slow: the side on which the value lies according to the search.
        errors: error rates of the labels.

    Returns:
        ``agrees``, ``repeat`` or ``contradicts``.

    Raises:
        ValueError: no label, or rates without meaning.
    """
    labels = np.asarray(slow, dtype=bool)
    if labels.size == 0:
        raise ValueError("an adjacency check needs at least one label")
    rates = _checked_errors(errors, turned=expected_slow)
    against = int((labels != expected_slow).sum())
    odds = against * np.log((1 - rates.false_normal) / rates.false_slow)
    odds += (labels.size - against) * np.log(rates.false_normal / (1 - rates.false_slow))
    if odds <= 0:
        return "agrees"
    return "contradicts" if odds >= CONTRADICTION else "repeat"


def split(boundary: Boundary, at: int) -> tuple[Bracket, Bracket]:
    """Brackets of the two further boundaries that a contradiction reveals.

    A slow value before an onset, or a normal one after it, means that the latency flips twice
    more between the boundary found and the far end of its bracket (``boundary_contradiction``).

    Args:
        boundary: the boundary that was found; it stands.
        at: axis value whose label contradicts it, inside the bracket and outside the interval.

    Raises:
        ValueError: a value outside the bracket or inside the interval of the boundary.
    """
    bracket = boundary.bracket
    first, last = boundary.interval
    other = RECOVERY if bracket.edge == ONSET else ONSET
    if bracket.low < at <= first:
        inner = first if at < first else last
        return Bracket(bracket.low, at, bracket.edge), Bracket(at, inner, other)
    if last <= at < bracket.high:
        inner = last if at > last else first
        return Bracket(inner, at, other), Bracket(at, bracket.high, bracket.edge)
    raise ValueError(f"{at} does not contradict a boundary in {boundary.interval}")


def _checked_bracket(low: int, high: int, edge: str) -> Bracket:
    if edge not in {ONSET, RECOVERY}:
        raise ValueError(f"edge must be onset or recovery, got {edge!r}")
    if int(low) != low or int(high) != high or not low < high:
        raise ValueError(f"a bracket needs integers low < high, got ({low}, {high}]")
    return Bracket(int(low), int(high), edge)


def _checked_labels(
    bracket: Bracket, queries: ArrayLike, slow: ArrayLike
) -> tuple[FloatArray, BoolArray]:
    tried = finite_vector(queries, "queries")
    hit = np.asarray(slow, dtype=bool)
    if hit.shape != tried.shape:
        raise ValueError(f"{tried.size} queries but {hit.size} labels")
    if tried.size and (tried.min() < bracket.low or tried.max() > bracket.high):
        raise ValueError(f"queries must lie within [{bracket.low}, {bracket.high}]")
    return tried, hit


def _checked_errors(errors: LabelErrors, turned: bool) -> LabelErrors:
    if min(errors) <= 0 or sum(errors) >= 1:
        raise ValueError(f"label errors must be positive with a sum below 1, got {errors}")
    return LabelErrors(errors.false_normal, errors.false_slow) if turned else errors
