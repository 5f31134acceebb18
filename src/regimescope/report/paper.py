"""The claims of the paper for a terminal and as a page. Layer: report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from regimescope.analysis.paper import SOURCE, Claim
from regimescope.report.compare_text import print_hanging

_STYLES = {"yes": "bold green", "in part": "bold yellow", "no": "bold red"}


def print_claims(console: Console, claims: Sequence[Claim]) -> None:
    """Print each claim: published, recomputed, supported or not, why."""
    print_hanging(console, f"The claims of {SOURCE} against its own published figures", "bold")
    for claim in claims:
        console.print()
        print_hanging(console, claim.name)
        print_hanging(console, f"  published: {claim.published}")
        print_hanging(console, f"  recomputed: {claim.recomputed}")
        print_hanging(
            console, f"  supported: {claim.supported}; {claim.why}", _STYLES[claim.supported]
        )


def claims_page(claims: Sequence[Claim]) -> str:
    """Return the page of the documentation as Markdown."""
    rows = [
        f"| {claim.name} | {claim.published} | {claim.recomputed} | {claim.supported} | "
        f"{claim.why} |"
        for claim in claims
    ]
    return "\n".join(
        [
            "# The paper's claims, recomputed",
            "",
            f"From the figures that {SOURCE} publishes, by `regimescope analyze paper`; this page "
            "is written by `scripts/paper.py`. The figures come with the package, under "
            "`regimescope/datasets`.",
            "",
            "| claim | published | recomputed | supported | why |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
