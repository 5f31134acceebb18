"""Tables of the benchmark, from the stored counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.detection.cells import CLEAN_COLUMNS, EDGE_COLUMNS, REGIME_COLUMNS
from benchmarks.detection.results import Key, Scores
from benchmarks.detection.scoring import CONFIRMED, OURS, RAW, RESIDUAL, SHAPED, Score
from scipy import stats

LEVEL = 0.95
SHOWN_FALSE = ("clean", "step2")  # of the side-by-side tables; the others stand in their own
INPUT_WORDS = {
    RAW: "raw medians",
    RESIDUAL: "residuals",
    CONFIRMED: "+ confirmation",
    SHAPED: "+ shape gate",
}


def rate_interval(events: int, of: int) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate, 95 %, two-sided."""
    found = stats.binomtest(events, of).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)


def upper_bound(events: int, of: int) -> float:
    """One-sided 95 % upper bound of a rate."""
    return 1.0 if events == of else float(stats.beta.ppf(LEVEL, events + 1, of - events))


def false_rate(score: Score | None) -> str:
    """Sweeps with a false regime per 1000, with its interval."""
    if score is None or not score.sweeps:
        return "–"
    low, high = rate_interval(score.alarms, score.sweeps)
    return f"{thousandths(score.alarms / score.sweeps)} [{thousandths(low)}–{thousandths(high)}]"


def thousandths(rate: float) -> str:
    """A rate per 1000, two digits below ten and none after the point above."""
    value = 1000 * rate
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def count(score: Score) -> str:
    """Sweeps with a false regime, of how many."""
    return f"{score.alarms} of {score.sweeps}" if score.sweeps else "–"


def recall(score: Score | None) -> str:
    """Share of regimes found, and of regimes with both edges exact."""
    if score is None or not score.events:
        return "–"
    return _pair(_shares(score))


def ratio(part: int, whole: int, digits: int = 3) -> str:
    """A share with its interval and its size."""
    if not whole:
        return "–"
    low, high = rate_interval(part, whole)
    return f"{part / whole:.{digits}f} [{low:.{digits}f}–{high:.{digits}f}] of {whole}"


def markdown(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def noises_of(scores: Scores) -> list[str]:
    """Noise cells in their order of appearance."""
    return list(dict.fromkeys(key[0] for key in scores))


def summed(scores: Scores, wanted: Iterable[Key]) -> Score:
    """Sum of several cells."""
    total = Score()
    for key in wanted:
        total.add(scores.get(key, Score()))
    return total


def clean_table(scores: Scores) -> list[str]:
    """False regimes of the package with confirmation, by noise and by what is true."""
    names = noises_of(scores)
    shown = [c for c in CLEAN_COLUMNS[1:] if summed(scores, _ours(names, [c])).sweeps]
    rows = []
    for label, group in [*((name, [name]) for name in names), ("all", names)]:
        clean = summed(scores, _ours(group, ["clean"]))
        every = summed(scores, _ours(group, CLEAN_COLUMNS))
        screened = summed(scores, [(name, "clean", OURS, RAW) for name in group])
        if not every.sweeps:
            continue
        bounds = [
            thousandths(upper_bound(s.alarms, s.sweeps)) if s.sweeps else "–"
            for s in (clean, every)
        ]
        others = [count(summed(scores, _ours(group, [c]))) for c in shown]
        rows.append(
            [label, false_rate(screened), count(clean), bounds[0], *others, count(every), bounds[1]]
        )
    head = ["noise", "clean, screen alone: per 1000 [CP95]", "clean", "bound per 1000"]
    return markdown([*head, *shown, "all", "bound per 1000"], rows)


def _ours(noises: Iterable[str], columns: Iterable[str]) -> list[Key]:
    return [(noise, column, OURS, CONFIRMED) for noise in noises for column in columns]


def regime_table(scores: Scores) -> list[str]:
    """Recall, edges and slowdowns of the package with confirmation, by noise and kind."""
    rows = []
    for noise in noises_of(scores):
        for column in (*REGIME_COLUMNS, *EDGE_COLUMNS):
            score = scores.get((noise, column, OURS, CONFIRMED))
            if score is None or not score.sweeps:
                continue
            error = f"{score.edge_error / score.edges:.2g}" if score.edges else "–"
            rows.append(
                [noise, column, ratio(score.hits, score.events, 2),
                 ratio(score.exact, score.hits, 2), ratio(score.covered, score.edges, 3), error,
                 ratio(score.slowdowns_covered, score.slowdowns, 2),
                 f"{score.alarms} of {score.sweeps}", f"{score.tokens / score.sweeps / 1000:.0f}k"]
            )  # fmt: skip
    head = ["noise", "regime", "found", "of these exact to a token", "edge interval covers",
            "mean edge error, tokens", "slowdown interval covers",
            "false", "tokens/sweep"]  # fmt: skip
    return markdown(head, rows)


def side_by_side(scores: Scores, noise: str) -> list[str]:
    """All methods in one noise cell."""
    pairs = dict.fromkeys((key[2], key[3]) for key in scores if key[0] == noise)
    names = [pair for pair in pairs if pair[0] == OURS]
    names += sorted(pair for pair in pairs if pair[0] != OURS)
    rows = []
    for method, given in names:
        cells = {
            key[1]: s for key, s in scores.items() if key[0] == noise and key[2:] == (method, given)
        }
        total = summed(scores, [(noise, c, method, given) for c in cells])
        rows.append(
            [method, INPUT_WORDS[given], *(false_rate(cells.get(c)) for c in SHOWN_FALSE),
             *(recall(cells.get(c)) for c in REGIME_COLUMNS),
             f"{total.tokens / total.sweeps / 1000:.0f}k",
             f"{1000 * total.cpu_s / total.timed:.0f}" if total.timed else "–"]
        )  # fmt: skip
    head = ["method", "input", "clean: false/1000 [CP95]", "step 2x: false/1000 [CP95]"]
    wide = [c if c != "two" else "two regimes" for c in REGIME_COLUMNS]
    return markdown([*head, *wide, "tokens/sweep", "CPU ms/sweep"], rows)


def compared(scores: Scores, noise: str) -> dict[str, int]:
    """Sweeps behind each column of a side-by-side table, of the baselines."""
    counts: dict[str, int] = {}
    for key, score in scores.items():
        if key[0] == noise and key[2] != OURS:
            counts[key[1]] = max(counts.get(key[1], 0), score.sweeps)
    return counts


def wins(scores: Scores, noise: str) -> Iterator[str]:
    """Say in which columns a baseline found more than the joint fit, screens and confirmed apart.

    More regimes count first, then more with exact edges; equal shares are no win.
    """
    stages = (("as a screen", RAW, (RAW, RESIDUAL)), ("with confirmation", CONFIRMED, (CONFIRMED,)))
    for words, given, rival_inputs in stages:
        for column in REGIME_COLUMNS:
            ours = scores.get((noise, column, OURS, given))
            rivals = {
                key[2:]: _shares(score)
                for key, score in scores.items()
                if key[:2] == (noise, column) and key[2] != OURS and key[3] in rival_inputs
                if score.events
            }
            if ours is None or not ours.events or not rivals:
                continue
            best = max(rivals.values())
            if best > _shares(ours):
                names = ", ".join(
                    name if word == CONFIRMED else f"{name} on {INPUT_WORDS[word]}"
                    for (name, word), share in rivals.items()
                    if share == best
                )
                yield f"{column}, {words}: {names} {_pair(best)}, joint fit {_pair(_shares(ours))}"


def _shares(score: Score) -> tuple[float, float]:
    return score.hits / score.events, score.exact / score.events


def _pair(shares: tuple[float, float]) -> str:
    return f"{shares[0]:.2f} / {shares[1]:.2f}"
