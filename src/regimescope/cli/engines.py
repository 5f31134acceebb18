"""``regimescope engines``."""

from __future__ import annotations

from regimescope.cli.output import console


def engines() -> None:
    """List the engines and how to install those that are missing."""
    from regimescope.engines.registry import describe_engines
    from regimescope.report.text import print_engines

    print_engines(console(), describe_engines())
