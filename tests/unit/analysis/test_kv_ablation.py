"""What the KV cache buys: known speed-ups, their collapse, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.unit.analysis.test_compare import GRID, measured

from regimescope.analysis.kv_ablation import kv_ablation
from regimescope.errors import InputError

BAND = {"bands": [{"onset": 512, "recovery": 640, "slowdown": 10.0}]}


def pair(folder: Path, seed: int = 1, **options: Any) -> tuple[Any, Any]:
    """A run with the cache, perhaps with a slow interval, and one without."""
    on = measured(folder, seed, engine_options=options)
    return on, measured(folder, seed + 1000, kv_cache="off")


def test_speed_ups_grow_with_the_budget_and_collapse_inside_a_regime(tmp_path: Path) -> None:
    found = kv_ablation(*pair(tmp_path, **BAND))
    assert [one.x for one in found.speed_ups] == list(GRID)
    assert found.collapsed == (512, 576)
    outside = [one.ratio.value for one in found.speed_ups if one.x not in found.collapsed]
    assert outside == sorted(outside)
    assert all(one.ratio.n == 8 for one in found.speed_ups)


def test_a_known_factor_is_covered_and_nothing_collapses_or_falls(tmp_path: Path) -> None:
    covered = values = collapsed = falls = 0
    for seed in range(6):
        on, off = pair(tmp_path, seed)
        trials = tuple(
            replace(t, cell=replace(t.cell, kv_cache="off"), decode_s=3.0 * (t.decode_s or 0))
            for t in measured(tmp_path, 500 + seed).run.trials
        )
        tripled = off._replace(run=replace(off.run, trials=trials))
        found = kv_ablation(on, tripled)
        values += len(found.speed_ups)
        covered += sum((s.ratio.low or 9) <= 3.0 <= (s.ratio.high or 0) for s in found.speed_ups)
        collapsed += len(found.collapsed)
        falls += len(found.falling)
    assert covered / values > 0.85
    assert (collapsed, falls) == (0, 0)


def test_a_fall_without_the_cache_beyond_its_interval_is_named(tmp_path: Path) -> None:
    on, off = pair(tmp_path)
    trials = tuple(
        replace(t, decode_s=5.0 * (t.decode_s or 0)) if t.cell.budget == 256 else t
        for t in off.run.trials
    )
    found = kv_ablation(on, off._replace(run=replace(off.run, trials=trials)))
    assert (256, 320) in found.falling


def test_one_process_has_no_interval_and_still_a_speed_up(tmp_path: Path) -> None:
    on = measured(tmp_path, 1, processes=1)
    off = measured(tmp_path, 2, processes=1, kv_cache="off")
    found = kv_ablation(on, off)
    assert all(one.ratio.low is None for one in found.speed_ups)
    assert np.isfinite([one.ratio.value for one in found.speed_ups]).all()
    assert found.falling == ()


def test_runs_that_are_no_pair_are_refused(tmp_path: Path) -> None:
    on, off = pair(tmp_path)
    for wrong in ((off, on), (on, on), (off, off)):
        with pytest.raises(InputError) as caught:
            kv_ablation(*wrong)
        assert "--kv-cache off" in caught.value.remedy
    with pytest.raises(InputError, match="prompt tokens"):
        kv_ablation(on, measured(tmp_path, 7, kv_cache="off", prompt_tokens=33))
    with pytest.raises(InputError, match="share no value"):
        kv_ablation(on, measured(tmp_path, 8, kv_cache="off", budgets=(33, 65, 97)))
