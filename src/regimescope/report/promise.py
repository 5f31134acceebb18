"""What a search promises, in plain words. Layer: report.

Source: method, section 11, the guarantee.
"""

from __future__ import annotations

from regimescope.report import wording
from regimescope.results import Conclusion, Guarantee
from regimescope.units import count, ratio, share


def promise_sentences(conclusion: Conclusion) -> tuple[str, ...]:
    """Return the guarantee in force with its conditions; empty without a search.

    Args:
        conclusion: The verdict on a search, or on anything else.
    """
    found = conclusion.guarantee
    if found is None:
        return ()
    lines = [_extent(found, conclusion)]
    if found.final_processes is not None:
        fresh = count(found.final_processes, "fresh process")
        lines.append(f"final check in {fresh}, at full length on both sides of each edge")
    if found.withdrawn:
        why = "; ".join(wording.reason_text(reason, conclusion) for reason in found.withdrawn)
        return (*lines, f"nothing is promised about what was not found: {why}")
    return (*lines, *_in_force(found))


def _extent(found: Guarantee, conclusion: Conclusion) -> str:
    """Say where the search looked, and at what cost."""
    values = wording.axis_words(conclusion.axis).many
    beyond = ""
    if found.looked is not None:
        low, high = found.looked
        beyond = f"; to see an interval end it looked outside it, from {low:,} to {high:,}"
    return (
        f"searched {values} {found.low:,} to {found.high:,} with {found.tokens:,} decoded tokens, "
        f"warm-ups included{beyond}"
    )


def _in_force(found: Guarantee) -> list[str]:
    """Return the promise itself and what it assumes."""
    always = "" if found.prevalence >= 1 else f" in at least {share(found.prevalence)} of processes"
    alone = " in the one process measured" if found.processes == 1 else ""
    edge = (
        f"an edge lies outside its interval in at most {share(found.edge_error)}"
        if found.prevalence >= 1
        else "edges are as fine as the screen and are not refined"
    )
    others = "other processes like this one" if alone else "independent processes"
    return [
        f"a slow interval at least {found.width} wide, {ratio(found.slowdown)} or slower{always}, "
        f"with a normal value on both sides was met by the screen{alone}",
        f"a false regime is confirmed in at most {found.false_regimes * 1000:g} of 1000 searches, "
        f"{edge}",
        f"assumed: {others}, and a normal curve that rises and bends upwards only",
    ]
