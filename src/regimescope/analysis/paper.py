"""The claims of arXiv 2605.08913 against its own published figures. Layer: ``analysis``.

What the figures say is recomputed, by the methods that judge any other run where there is a curve;
whether they bear the claim is another question, answered with its reason.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

import numpy as np
from scipy import stats

from regimescope.analysis.regimes import conclude
from regimescope.records import SCHEMA_VERSION, Cell, Run, RunHeader, Series, Trial
from regimescope.results import Conclusion, Regime, Result
from regimescope.units import ratio, share

SOURCE = "arXiv 2605.08913"
_FOLDER = "arxiv-2605-08913"
# Published spread over five runs, KV cache off (README of the harness): population deviations.
RUNS = 5
OFF_SD_S = {512: 1.1, 640: 21.5}
LEVEL = 0.95

Support = Literal["yes", "in part", "no"]


class Claim(Result, frozen=True, kw_only=True):
    """One claim of the paper.

    Attributes:
        name: What is claimed, in a few words.
        published: What the paper says.
        recomputed: What its figures give.
        supported: Whether they bear the claim.
        why: The reason.
    """

    name: str
    published: str
    recomputed: str
    supported: Support
    why: str


def paper_claims() -> tuple[Claim, ...]:
    """Return every claim with what the published figures make of it."""
    return (
        _slowdown("gpt2-medium", _probe()),
        _slowdown("gpt2-large", None),
        _edges(),
        _prefill(),
        _speed_up(),
        _inversion(),
        _memory(),
        _t4(),
        _follows(),
        _means(),
    )


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of a published table, by the names of its header."""
    path = files("regimescope") / "datasets" / _FOLDER / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def series(budgets: Sequence[int], seconds: Sequence[float], **cell: int) -> Run:
    """Return published means as a run: one value a budget, nothing known of process or order."""
    trials = tuple(
        Trial(
            trial_id=f"budget{budget}",
            occasion=SOURCE,
            series=Series(engine="paper harness", device="mps"),
            cell=Cell(budget=budget, batch=1, prompt_tokens=cell.get("prompt_tokens")),
            status="ok",
            warmup=False,
            phase="mixed",
            output_tokens=budget,
            decode_steps=budget - 1,
            e2e_s=value,
        )
        for budget, value in zip(budgets, seconds, strict=True)
    )
    header = RunHeader(
        schema_version=SCHEMA_VERSION, run=SOURCE, created_utc="", axis="budget", source=SOURCE
    )
    return Run(header=header, trials=trials)


def _probe() -> Regime:
    """Return the slow interval of the fine probe."""
    return _only(conclude(_series_of("probe_gpt2_medium", "latency_s")))


def _series_of(name: str, column: str) -> Run:
    """Return one column of a table as a run."""
    rows = table(name)
    return series([int(row["budget"]) for row in rows], [float(row[column]) for row in rows])


def _only(conclusion: Conclusion) -> Regime:
    """Return the one slow interval of a series that has one."""
    (regime,) = conclusion.regimes
    return regime


def _slowdown(model: str, regime: Regime | None) -> Claim:
    """Recompute a published slowdown, and the one against the same budget."""
    (row,) = [row for row in table("anomaly_summary") if row["model"] == model]
    spike, reference = float(row["spike_s"]), float(row["reference_s"])
    budget, other = int(row["budget"]), int(row["reference_budget"])
    if regime is not None and regime.slowdown is not None:
        found = regime.slowdown
        same = (
            f"{ratio(found.value)} ({ratio(found.low or 0)} to {ratio(found.high or 0)}) over the "
            "expected latency of the fine probe"
        )
    else:
        same = (
            f"{ratio(spike / _chord(model, 'mps_s', budget))} over the line between its neighbors"
        )
    return Claim(
        name=f"{model} is {row['published_slowdown']}x slower at budget {budget}",
        published=f"{row['published_slowdown']}x",
        recomputed=f"{spike:g} s at {budget} over {reference:g} s at {other}: "
        f"{ratio(spike / reference)}",
        supported="in part",
        why=f"the ratio compares different budgets; against the same budget it is {same}",
    )


def _chord(model: str, column: str, budget: int) -> float:
    """Return the time at a budget on the line between its neighbors in the table of the T4."""
    rows = [row for row in table("cuda_t4") if row["model"] == model]
    known = {int(row["budget"]): float(row[column]) for row in rows}
    beside = sorted(known.keys() - {budget})
    return float(np.interp(budget, beside, [known[b] for b in beside]))


def _edges() -> Claim:
    """Recompute where the fine probe is slow."""
    conclusion = conclude(_series_of("probe_gpt2_medium", "latency_s"))
    regime = _only(conclusion)
    onset, recovery = regime.onset or (0, 0), regime.recovery or (0, 0)
    return Claim(
        name="budgets 512 to 624 are slow, with edges one step of 16 wide",
        published="slow at 512 to 624, normal at 496 and 640",
        recomputed=f"{conclusion.verdict.value} of grade {conclusion.grade.value}: onset in "
        f"({onset[0]}, {onset[1]}], recovery in ({recovery[0]}, {recovery[1]}]",
        supported="in part",
        why="the interval is plain in the means, but each is one process and one mean, so that it "
        "is a candidate: budget and process cannot be told apart",
    )


def _prefill() -> Claim:
    """Recompute the share of prefill at the slow budget."""
    normal, slow = table("phases_gpt2_medium")
    part = float(slow["prefill_s"]) / float(slow["total_s"])
    growth = float(slow["decode_s"]) / float(normal["decode_s"])
    prefill = float(slow["prefill_s"]) / float(normal["prefill_s"])
    return Claim(
        name="the decode phase is slow, not prefill",
        published="prefill is 0.1 % of the slow total",
        recomputed=f"prefill {share(part)} of {slow['total_s']} s; decode grows {ratio(growth)} "
        f"from {normal['budget']} to {slow['budget']}, prefill {ratio(prefill)}",
        supported="yes",
        why="a share of a thousandth cannot carry a tenfold total, whatever the spread",
    )


def _speed_up() -> Claim:
    """Recompute the speed-up of the KV cache."""
    rows = table("kv_ablation_gpt2_medium")
    found = {
        int(row["budget"]): float(row["kv_cache_off_s"]) / float(row["kv_cache_on_s"])
        for row in rows
    }
    slow = found.pop(512)
    on = _only(conclude(_series_of("kv_ablation_gpt2_medium", "kv_cache_on_s")))
    much = ratio(on.slowdown.value) if on.slowdown else "much"
    return Claim(
        name="the speed-up of the KV cache collapses inside",
        published="4.9x to 20.3x outside, 1.9x at 512",
        recomputed=f"{ratio(min(found.values()))} to {ratio(max(found.values()))} outside, "
        f"{ratio(slow)} at 512",
        supported="yes",
        why=f"the collapse is that of the run with the cache, {much} slower at 512 than its curve; "
        "the run without it moves by much less than that",
    )


def _inversion() -> Claim:
    """Test whether the run without the cache is really slower at 512 than at 640."""
    rows = {
        int(row["budget"]): float(row["kv_cache_off_s"]) for row in table("kv_ablation_gpt2_medium")
    }
    # Published deviations divide by n; Welch's test wants those of a sample.
    sample = np.sqrt(RUNS / (RUNS - 1))
    test = stats.ttest_ind_from_stats(
        rows[512], OFF_SD_S[512] * sample, RUNS, rows[640], OFF_SD_S[640] * sample, RUNS,
        equal_var=False,
    )  # fmt: skip
    p_value = float(test.pvalue)
    return Claim(
        name="without the cache 512 is slower than 640 as well",
        published=f"{rows[512]:g} s at 512, {rows[640]:g} s at 640",
        recomputed=f"a difference of {rows[512] - rows[640]:.1f} s with deviations of "
        f"{OFF_SD_S[512]:g} s and {OFF_SD_S[640]:g} s over {RUNS} runs: p = {p_value:.2f}",
        supported="no" if p_value > 1 - LEVEL else "in part",
        why="the inversion lies inside the spread of its own runs, which are of one process each",
    )


def _memory() -> Claim:
    """Recompute the growth of live memory."""
    rows = table("memory_gpt2_medium")
    budgets = np.array([int(row["budget"]) for row in rows], dtype=np.float64)
    live = np.array([float(row["peak_live_mb"]) for row in rows])
    steps = np.diff(live)
    line = stats.linregress(budgets, live)
    off = np.abs(live - (line.intercept + line.slope * budgets)).max()
    return Claim(
        name="memory does not explain it",
        published="live memory grows smoothly, about 25 MB per 128 tokens",
        recomputed=f"{steps.min():g} to {steps.max():g} MB a step; no budget is off its line by "
        f"more than {off:.1f} MB",
        supported="in part",
        why="it holds for live tensors; what the allocator and the driver hold in reserve was not "
        "recorded, and live memory cannot exclude it",
    )


def _t4() -> Claim:
    """Recompute how far the T4 is from the line between its neighbors."""
    found = []
    for model, budget in (("gpt2-medium", 512), ("gpt2-large", 384)):
        row = next(r for r in table("cuda_t4") if (r["model"], int(r["budget"])) == (model, budget))
        at = float(row["cuda_t4_s"]) / _chord(model, "cuda_t4_s", budget)
        found.append(f"{model} {ratio(at)} at {budget}")
    return Claim(
        name="a T4 is smooth at the same budgets",
        published="no spike on CUDA",
        recomputed=f"{', '.join(found)} of the line between its neighbors",
        supported="yes",
        why="for these two budgets; three budgets a model show no curve, and nothing between them",
    )


def _follows() -> Claim:
    """Compare both edges between two prompts, as budgets and as total lengths."""
    edges: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
    for prompt in (3, 65):
        rows = [r for r in table("prompt_length_gpt2_medium") if int(r["prompt_tokens"]) == prompt]
        slow = [int(r["budget"]) for r in rows if float(r["latency_s"]) > 50]
        normal = [int(r["budget"]) for r in rows if float(r["latency_s"]) <= 50]
        onset = (max(b for b in normal if b < min(slow)), min(slow))
        edges[prompt] = (onset, (max(slow), min(b for b in normal if b > max(slow))))
    words = []
    for index, name in enumerate(("onset", "recovery")):
        short, long = edges[3][index], edges[65][index]
        kept = "the budget" * _meet(short, long)
        total = "the total length" * _meet(_shifted(short, 3), _shifted(long, 65))
        words.append(f"{name} may follow {' or '.join(filter(None, (kept, total))) or 'neither'}")
    (short_on, short_off), (long_on, long_off) = edges[3], edges[65]
    return Claim(
        name="onset follows the total length, recovery the budget",
        published="two prompts of 3 and 65 tokens",
        recomputed=f"prompt 3: onset in ({short_on[0]}, {short_on[1]}], recovery in "
        f"({short_off[0]}, {short_off[1]}]; prompt 65: onset in ({long_on[0]}, {long_on[1]}], "
        f"recovery in ({long_off[0]}, {long_off[1]}]; {'; '.join(words)}",
        supported="in part",
        why="neither budget nor length alone explains both edges (axis_mixed), but each edge rests "
        "on two means a prompt, four budgets in all",
    )


def _shifted(edge: tuple[int, int], tokens: int) -> tuple[int, int]:
    """Return an edge as a total length."""
    return edge[0] + tokens, edge[1] + tokens


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether one value could be the edge of both: ``(low, high]`` intervals overlap."""
    return max(a[0], b[0]) < min(a[1], b[1])


def _means() -> Claim:
    """Say what no figure of the paper can show."""
    return Claim(
        name="five runs after three warm-ups describe a budget",
        published="means over 5 runs, ascending budgets, one server process each",
        recomputed="one value a budget",
        supported="no",
        why="runs, processes and order are not published: nothing can be tested between processes, "
        "and a lottery of processes cannot be excluded; every verdict ends at grade C",
    )
