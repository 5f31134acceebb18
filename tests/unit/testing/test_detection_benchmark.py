"""The detection benchmark counts right: what is slow, what is found, what is stored."""

import msgspec
import numpy as np
import pytest
from benchmarks import record_noise
from benchmarks.detection.cells import (
    CLEAN_COLUMNS,
    EDGE_COLUMNS,
    REGIME_COLUMNS,
    draw_case,
    noises,
    summarized,
)
from benchmarks.detection.results import Task, keep, load, store
from benchmarks.detection.scoring import CONFIRMED, OURS, RAW, Score, score_screen
from benchmarks.detection.segments import raised_anomalies, raised_runs, runs_above
from benchmarks.detection.table import false_rate, side_by_side, upper_bound, wins

from regimescope.testing.synthetic_noise import NOISE_CELLS

TASK = Task("gauss", "clean", 0, compare=False)


def level(*parts):
    return np.concatenate([np.full(n, value, dtype=float) for n, value in parts])


def test_a_piece_above_both_neighbors_is_slow():
    assert raised_runs(level((4, 0), (3, 1), (4, 0)), [4, 7]) == [(4, 7)]


def test_a_run_of_raised_pieces_is_one_stretch():
    assert raised_runs(level((4, 0), (2, 1), (2, 2), (4, 0)), [4, 6, 8]) == [(4, 8)]


def test_a_normal_point_between_two_raised_pieces_separates_them():
    y = level((4, 0), (2, 1), (1, 0), (2, 1), (4, 0))
    assert raised_runs(y, [4, 6, 7, 9]) == [(4, 6), (7, 9)]


@pytest.mark.parametrize("parts", [[(5, 0), (5, 1)], [(5, 1), (5, 0)], [(5, 0), (3, 0.1), (5, 0)]])
def test_steps_ends_and_small_bumps_are_not_slow_stretches(parts):
    y = level(*parts)
    assert raised_runs(y, np.cumsum([n for n, _ in parts])[:-1].tolist()) == []


def test_anomalies_count_only_when_raised_and_inside():
    y = level((4, 0), (2, 1), (4, 0), (2, -1), (4, 0), (2, 1))
    assert raised_anomalies(y, [(4, 6), (10, 12), (16, 18)]) == [(4, 6)]
    assert raised_anomalies(y, [(0, 18)]) == []


def test_runs_above_a_limit_leave_out_the_ends():
    assert runs_above(np.array([1.0, 0, 1, 1, 0, 1]), 0.5) == [(2, 4)]


@pytest.mark.parametrize("column", [*CLEAN_COLUMNS, *REGIME_COLUMNS, *EDGE_COLUMNS])
def test_every_column_draws_the_same_case_again(column):
    first, second = (draw_case("skew", NOISE_CELLS["skew"], column, 3) for _ in range(2))
    np.testing.assert_array_equal(first.log_s, second.log_s)
    assert bool(first.truth.regimes) == (column not in CLEAN_COLUMNS)
    assert not np.array_equal(first.log_s, draw_case("skew", NOISE_CELLS["skew"], column, 4).log_s)


def test_two_methods_get_the_same_fresh_trials():
    case = draw_case("heavy", NOISE_CELLS["heavy"], "2x wide", 1)
    answers = []
    for _ in range(2):
        machine, order = case.fresh()
        answers.append(machine.run(order.permutation([100, 500, 900]), 100).seconds)
    np.testing.assert_array_equal(*answers)


def test_trials_that_end_early_are_left_out_of_the_medians():
    case = draw_case("gauss", NOISE_CELLS["gauss"], "early_end", 0)
    early = case.trials.output_tokens < case.trials.budget
    assert early.any()
    assert summarized(case.trials).repeats.sum() == np.count_nonzero(~early)


def test_an_exact_hit_a_partial_one_and_a_false_one_are_told_apart():
    case = draw_case("gauss", NOISE_CELLS["gauss"], "2x wide", 0)
    (regime,) = case.truth.regimes
    inside = np.flatnonzero((case.steps + 1 >= regime.onset) & (case.steps + 1 < regime.recovery))
    whole, part = (int(inside[0]), int(inside[-1]) + 1), (int(inside[0]), int(inside[0]) + 1)
    exact = score_screen(case, [whole], 0.0)
    assert (exact.hits, exact.halves, exact.exact, exact.false) == (1, 1, 1, 0)
    partial = score_screen(case, [part], 0.0)
    assert (partial.hits, partial.halves, partial.exact) == (1, 0, 0)
    wrong = score_screen(case, [(1, 2)], 0.0)
    assert (wrong.hits, wrong.alarms, wrong.false, wrong.events) == (0, 1, 1, 1)


def test_stored_counts_add_up_and_name_what_is_done(tmp_path):
    path = tmp_path / "results.jsonl"
    for first in (0, 10):
        store(path, TASK._replace(first=first), {(OURS, RAW): Score(sweeps=10, alarms=1)})
    scores, done = load(path)
    assert done == {TASK, TASK._replace(first=10)}
    assert scores["gauss", "clean", OURS, RAW] == Score(sweeps=20, alarms=2)


def test_sweeps_that_ran_twice_count_once(tmp_path):
    path = tmp_path / "results.jsonl"
    ours, other = (OURS, RAW), ("PELT l2", RAW)
    store(path, TASK, {ours: Score(sweeps=10)})
    store(path, TASK, {ours: Score(sweeps=10)})
    store(path, TASK._replace(compare=True), {ours: Score(sweeps=10), other: Score(sweeps=10)})
    scores, _ = load(path)
    assert scores[("gauss", "clean", *ours)].sweeps == 10
    assert scores[("gauss", "clean", *other)].sweeps == 10


def test_a_line_cut_short_does_not_stop_the_next_run(tmp_path):
    path = tmp_path / "results.jsonl"
    store(path, TASK, {(OURS, RAW): Score(sweeps=10)})
    with path.open("a") as file:
        file.write('\n{"design": 1, "se')
    store(path, TASK._replace(first=10), {(OURS, RAW): Score(sweeps=10)})
    scores, done = load(path)
    assert done == {TASK, TASK._replace(first=10)}
    assert scores["gauss", "clean", OURS, RAW].sweeps == 20


def test_kept_counts_are_those_of_all_runs_and_later_runs_add_to_them(tmp_path):
    path, kept = tmp_path / "results.jsonl", tmp_path / "counts.jsonl"
    ours, other = (OURS, RAW), ("PELT l2", RAW)
    store(path, TASK, {ours: Score(sweeps=10, tokens=7)})
    store(path, TASK._replace(compare=True), {ours: Score(sweeps=10), other: Score(sweeps=10)})
    store(path, TASK._replace(first=10), {ours: Score(sweeps=10, cpu_s=0.5)})
    before = load(path)
    keep(kept, *before)
    assert load(tmp_path / "none", kept) == before
    assert load(path, kept) == before
    written = kept.read_bytes()
    keep(kept, *load(path, kept))
    assert kept.read_bytes() == written
    store(path, TASK._replace(first=20), {ours: Score(sweeps=10)})
    scores, done = load(path, kept)
    assert len(done) == 4
    assert scores[("gauss", "clean", *ours)].sweeps == 30


def test_recorded_noise_becomes_a_cell_that_replays_it(tmp_path):
    record_noise.main(
        ["--engine", "simulated", "--device", "virtual", "--model", "smooth", "--processes", "2",
         "--budgets", "64:256:64", "--repeats", "3", "--folder", str(tmp_path)]
    )  # fmt: skip
    (path,) = tmp_path.glob("*.json")
    (series,) = msgspec.json.decode(path.read_bytes())["series"]
    cell = noises(tmp_path)["replay_virtual_smooth"]
    assert [part.tolist() for part in cell.recorded] == series["log_residuals"]
    assert sum(map(len, series["log_residuals"])) == series["trials"] >= 16
    assert np.isfinite(draw_case("replay_virtual_smooth", cell, "2x wide", 0).log_s).all()


def test_the_bound_of_the_method_comes_out():
    assert 1000 * upper_bound(0, 2000) == pytest.approx(1.5, abs=0.01)
    assert 1000 * upper_bound(0, 2995) <= 1.0 < 1000 * upper_bound(0, 2994)
    assert 1000 * upper_bound(2, 6294) <= 1.0 < 1000 * upper_bound(2, 6293)
    assert false_rate(Score(sweeps=2000)) == "0 [0–1.8]"
    assert false_rate(Score()) == "–"


def test_a_baseline_that_finds_more_is_named():
    column = REGIME_COLUMNS[0]
    scores = {
        ("gauss", column, OURS, CONFIRMED): Score(sweeps=10, events=10, hits=8, exact=8),
        ("gauss", column, "PELT l2", CONFIRMED): Score(sweeps=10, events=10, hits=9, exact=9),
        ("gauss", column, "PELT l1", CONFIRMED): Score(sweeps=10, events=10, hits=7, exact=7),
    }
    (line,) = wins(scores, "gauss")
    assert line == f"{column}, with confirmation: PELT l2 0.90 / 0.90, joint fit 0.80 / 0.80"
    table = side_by_side(scores, "gauss")
    assert table[2].startswith(f"| {OURS} |")
    assert len({row.count("|") for row in table}) == 1
