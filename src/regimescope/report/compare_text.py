"""The comparison of two runs as a terminal shows it. Layer: report."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from regimescope.analysis.compare import Comparison, RegimeChange
from regimescope.analysis.kv_ablation import KvAblation
from regimescope.report.escaping import encodable, plain
from regimescope.report.text import MOST_WIDTH
from regimescope.report.wording import axis_words, edge_text, regime_kind, span
from regimescope.results import Estimate, Regime
from regimescope.units import listing, ratio

_HEADLINES = {
    "same": "the regimes are the same",
    "changed": "the regimes changed",
    "cannot tell": "whether the regimes changed cannot be told",
}
_STYLES = {"same": "bold green", "changed": "bold red", "cannot tell": "bold yellow"}


def print_comparisons(console: Console, found: Sequence[Comparison]) -> None:
    """Print each comparison: what differs, what became of each regime, the normal speed."""
    for number, comparison in enumerate(found):
        if number:
            console.print()
        for line, style in comparison_lines(comparison):
            print_hanging(console, line, style)


def print_hanging(console: Console, line: str, style: str = "") -> None:
    """Print a line; where it is broken, the rest stands two columns further in."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    wrapped = textwrap.wrap(
        encodable(line, console.encoding),
        min(console.width, MOST_WIDTH),
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    for part in wrapped:
        console.print(Text(part, style=style), highlight=False, soft_wrap=True)


def comparison_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the lines of a comparison, each with its style."""
    lines = [
        (f"{plain(comparison.before)} -> {plain(comparison.after)}", "dim"),
        (
            f"{comparison.verdict.upper()}: {_HEADLINES[comparison.verdict]}.",
            _STYLES[comparison.verdict],
        ),
    ]
    for change in comparison.regimes:
        lines += [(f"  {line}", "") for line in _change_lines(change, comparison.axis)]
    if not comparison.regimes:
        lines.append(("  neither run has a slow interval", ""))
    lines.append((f"normal speed: {speed_words(comparison)}", ""))
    if comparison.differences:
        lines.append(("what else differs:", ""))
        lines += [
            (f"  {plain(name)}: {plain(old)} -> {plain(new)}", "")
            for name, (old, new) in comparison.differences.items()
        ]
    return lines


def speed_words(comparison: Comparison) -> str:
    """Return how the normal latency changed, in words."""
    change = comparison.baseline
    if change.ratio is None:
        return f"cannot be compared; {plain(change.why)}"
    much = estimate_words(change.ratio)
    if change.verdict == "cannot tell":
        return f"latency {much}; {change.why}"
    if change.verdict == "same":
        return f"the same, latency {much}"
    return f"{change.verdict}, latency {much}"


def estimate_words(estimate: Estimate) -> str:
    """Return a ratio with its interval and n, where they are known."""
    parts = []
    if estimate.low is not None and estimate.high is not None:
        parts.append(f"{ratio(estimate.low)} to {ratio(estimate.high)}")
    if estimate.n is not None:
        parts.append(f"n = {estimate.n}")
    return ratio(estimate.value) + (f" ({', '.join(parts)})" if parts else "")


def _change_lines(change: RegimeChange, axis: str) -> list[str]:
    """Return what became of one interval, the first line with its class and place."""
    regime = change.after or change.before
    if regime is None:
        return []
    names = axis_words(axis)
    where = span(regime)
    place = f"{names.many} {where}" if where else f"all {names.many}"
    lines = [f"{' and '.join(change.changes)}: {regime_kind(regime)}, {place}"]
    lines[0] += f", grade {change.grade.value}"
    for name, one in (("before", change.before), ("after", change.after)):
        if one is not None:
            lines.append(f"  {name}: {_regime_words(one)}")
    if change.growth is not None:
        lines.append(f"  slowdown after over before: {estimate_words(change.growth)}")
    if change.why:
        lines.append(f"  {plain(change.why)}")
    return lines


def _regime_words(regime: Regime) -> str:
    """Return edges and slowdown of an interval."""
    onset = "no onset seen" if regime.onset is None else f"onset {edge_text(regime.onset)}"
    end = regime.recovery
    recovery = "no recovery seen" if end is None else f"recovery {edge_text(end)}"
    much = "" if regime.slowdown is None else f"{estimate_words(regime.slowdown)}; "
    return f"{much}{onset}, {recovery}"


def print_ablation(console: Console, found: KvAblation) -> None:
    """Print what the KV cache buys at each value, where that collapses, and what falls."""
    names = axis_words(found.axis)
    print_hanging(console, f"{plain(found.cached)} against {plain(found.uncached)}", "dim")
    values = [one.ratio.value for one in found.speed_ups if one.x not in found.collapsed]
    if values:
        print_hanging(
            console,
            f"The KV cache makes it {ratio(min(values))} to {ratio(max(values))} as fast at "
            f"{len(values)} {names.many}.",
            "bold",
        )
    if found.collapsed:
        text = listing(found.collapsed, most=20)
        print_hanging(
            console, f"Its speed-up collapses at {names.many} {text}, where it is slow.", "bold red"
        )
    for one in found.speed_ups:
        mark = "  collapsed" if one.x in found.collapsed else ""
        print_hanging(console, f"  {one.x:>8}  {estimate_words(one.ratio)}{mark}")
    for smaller, larger in found.falling:
        print_hanging(
            console,
            f"Without the cache {names.one} {smaller} takes longer than {larger}, beyond the "
            "interval: no growing work explains that.",
        )
