"""What a search promises, in plain words. Layer: report.

Source: method, section 11, the guarantee.
"""

from __future__ import annotations

from regimescope.reasons import meaning
from regimescope.report import wording
from regimescope.results import Conclusion
from regimescope.units import ratio, share


def promise_sentences(conclusion: Conclusion) -> tuple[str, ...]:
    """Return the guarantee in force with its conditions; empty without a search.

    Args:
        conclusion: The verdict on a search, or on anything else.
    """
    found = conclusion.guarantee
    if found is None:
        return ()
    values = wording.axis_words(conclusion.axis).many
    lines = [
        f"searched {values} {found.low:,} to {found.high:,} with {found.tokens:,} decoded tokens, "
        "warm-ups included"
    ]
    if found.withdrawn:
        why = "; ".join(meaning(reason) for reason in found.withdrawn)
        return (*lines, f"nothing is promised about what was not found: {why}")
    always = "" if found.prevalence >= 1 else f" in at least {share(found.prevalence)} of processes"
    return (
        *lines,
        f"a slow interval at least {found.width} wide, {ratio(found.slowdown)} or slower{always}, "
        "with a normal value on both sides was met by the screen",
        f"a false regime is confirmed in at most {found.false_regimes * 1000:g} of 1000 searches, "
        f"an edge lies outside its interval in at most {share(found.edge_error)}",
        "assumed: independent processes, and a normal curve that rises and bends upwards only",
    )
