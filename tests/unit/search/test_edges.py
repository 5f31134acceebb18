"""Labels of an edge: what was ended early says by its projection where it belongs."""

from __future__ import annotations

import numpy as np

from regimescope.search.confirming import Core
from regimescope.search.edges import edges_of
from regimescope.search.evidence import Evidence
from regimescope.search.screening import Place
from regimescope.stats.boundary import LabelErrors
from regimescope.stats.curve import Curve

CURVE = Curve(np.array([0.0, 10.0]), 1000.0, np.zeros((2, 2)))
CORE = Core(
    values=(550,),
    log_slowdown=np.array([np.log(4.0)]),
    controls=12,
    onset=(500, 550),
    recovery=None,
    errors=LabelErrors(0.05, 0.05),
    delta=float(np.log(4.0)),
)


def edge_after(value: int, factor: float, *, exact: bool, timed_out: bool) -> int:
    """Return where the onset is sought next to a trial of some factor over the expectation."""
    rows = Evidence(
        np.array([value], dtype=np.int64),
        np.log(np.array([factor * (value - 1) / 100])),
        np.array([0], dtype=np.int64),
        np.array([exact]),
        np.array([timed_out]),
        ("boundary",),
    )
    (edge,) = edges_of([CORE], CURVE, rows, Place("budget", 1))
    return edge.boundary.estimate


def test_an_aborted_trial_is_labeled_by_its_projection() -> None:
    # Ended as slower than a normal one, yet nearer to normal than to the core.
    assert edge_after(525, 1.5, exact=False, timed_out=False) > 525
    assert edge_after(525, 3.5, exact=False, timed_out=False) <= 525


def test_a_timeout_is_slow_however_short_it_was() -> None:
    assert edge_after(525, 1.0, exact=False, timed_out=True) <= 525


def test_a_finished_trial_is_labeled_by_half_the_slowdown() -> None:
    assert edge_after(525, 1.9, exact=True, timed_out=False) > 525
    assert edge_after(525, 2.1, exact=True, timed_out=False) <= 525
