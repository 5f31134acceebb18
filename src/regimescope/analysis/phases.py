"""Where the time of a generation goes: prefill and decode. Layer: ``analysis``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from regimescope import metrics
from regimescope.records import Trial
from regimescope.results import Phases, Range


def phases(trials: Sequence[Trial], *, by_budget: bool) -> Phases | None:
    """Return TTFT, TPOT and the share of prefill over trials that separate the phases.

    Args:
        trials: Measured trials.
        by_budget: Whether the budget is the swept axis, so that the share is told for each.

    Returns:
        ``None`` when no trial does.
    """
    timed = [t for t in trials if t.ttft_s is not None and t.e2e_s is not None]
    if not timed:
        return None
    ttft_s, tpot_s = [], []
    by_value: dict[int, list[float]] = defaultdict(list)
    for trial in timed:
        first_s, total_s = trial.ttft_s or 0.0, trial.e2e_s or 0.0
        ttft_s.append(first_s)
        per_token_s = metrics.tpot_s(first_s, total_s, trial.output_tokens or 0)
        if per_token_s is not None:
            tpot_s.append(per_token_s)
        share = metrics.prefill_share(first_s, total_s)
        if by_budget and share is not None and trial.cell.budget is not None:
            by_value[trial.cell.budget].append(share)
    return Phases(
        prefill_share=metrics.prefill_share(
            math.fsum(ttft_s), math.fsum(trial.e2e_s or 0.0 for trial in timed)
        ),
        ttft_s=_range(ttft_s),
        tpot_s=_range(tpot_s),
        by_value=tuple((x, float(np.median(shares))) for x, shares in sorted(by_value.items())),
    )


def _range(values: Sequence[float]) -> Range | None:
    """Return median, least and largest value."""
    if not values:
        return None
    return Range(value=float(np.median(values)), low=min(values), high=max(values), n=len(values))
