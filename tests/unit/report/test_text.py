import io
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console
from tests.unit.report.builders import (
    make_conclusion,
    make_points,
    make_regime,
    make_run,
    make_trial,
    probe_run,
)

from regimescope.reasons import Reason
from regimescope.records import Event
from regimescope.report.text import MOST_ROWS, print_conclusion, print_engines
from regimescope.results import Baseline, Counts, Grade, Verdict


def printed(run, conclusion, *, encoding="utf-8", width=80, terminal=False, **paths):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    colors = "standard" if terminal else "auto"
    console = Console(file=file, width=width, force_terminal=terminal, color_system=colors)
    print_conclusion(console, run, conclusion, **paths)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_the_summary_holds_everything_a_reader_needs():
    event = Event(kind="skip", at_utc="t", message="budget 700 is beyond the model")
    run = make_run(probe_run().trials, [event])
    text = printed(
        run,
        make_conclusion(),
        folder=Path("runs/probe"),
        report_path=Path("runs/probe/report.html"),
    )
    joined = " ".join(text.split())
    for part in (
        "probe / gpt2-medium / hf / mps / float32",
        "SPIKE candidate (grade C): budgets 512 to 624 take 11.1x the expected decode time",
        "Without any curve: budget 560 takes 13.4x",
        "decode time (s) by budget: o median, . expected",
        "budget median (s) expected (s) ratio n",
        "512 89.2 9.00 9.91x 1 slow",
        "prefill takes 0.2 % of the time; median TTFT 100 ms",
        "one trial for each budget, so the noise is unknown (no_replication)",
        "grade C: not confirmed",
        "12 trials measured, 0 failed, 0 left out, in 1 process run",
        "skip: budget 700 is beyond the model",
        "run folder: runs/probe report: runs/probe/report.html",
    ):
        assert part in joined


@pytest.mark.parametrize("width", [50, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_no_line_is_wider_than_the_console(width, encoding):
    long_name = "organization/" + "very-long-model-name-" * 8
    run = make_run(probe_run().trials, model_name=long_name)
    text = printed(run, make_conclusion(), width=width, encoding=encoding)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_encoding_lacks_is_escaped_and_lines_are_drawn_in_ascii(encoding):
    run = make_run(probe_run().trials, model_name="模型")
    text = printed(run, make_conclusion(), encoding=encoding)
    assert text.isascii()
    assert "\\u6a21" in text
    assert "+----" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_strings_from_outside_stay_text(terminal):
    hostile = "[red]x[/red] \x1b[31mred\x1b[0m [/] <b>\u2028\x07[link=http://x]y"
    event = Event(kind="skip", at_utc="t", message=hostile)
    run = make_run(probe_run().trials, [event], model_name=hostile)
    text = printed(run, make_conclusion(run=hostile), terminal=terminal, width=300)
    assert text.count("[red]x[/red] [31mred[0m [/] <b> [link=http://x]y") == 3
    assert "\x1b]8" not in text
    if not terminal:
        assert not set("\x1b\x07\u2028") & set(text)


def test_color_stays_away_from_files_and_from_those_who_do_not_want_it(monkeypatch):
    assert "\x1b" not in printed(probe_run(), make_conclusion())
    assert "\x1b[1;33m" in printed(probe_run(), make_conclusion(), terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="standard")
    print_conclusion(console, probe_run(), make_conclusion())
    assert "\x1b[1m" in file.getvalue()
    assert "33m" not in file.getvalue()


def test_a_long_table_is_cut_with_a_note_and_keeps_what_is_slow():
    values = dict.fromkeys(range(100, 300), 1.0) | dict.fromkeys(range(150, 156), 9.0)
    conclusion = make_conclusion(
        regimes=(make_regime(onset=(149, 150), recovery=(155, 156)),),
        baseline=Baseline(points=make_points(values, expected_s=1.0)),
    )
    text = printed(make_run(), conclusion)
    assert text.count(" slow\n") == 6
    assert f"{200 - MOST_ROWS} more rows left out" in text


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("grade", list(Grade))
def test_every_verdict_is_printed(verdict, grade):
    conclusion = make_conclusion(verdict, grade=grade, regimes=(make_regime(verdict, grade=grade),))
    text = printed(probe_run(), conclusion)
    assert f"\n{verdict.value}" in text
    assert ("grade C: not confirmed" in text) is (grade is Grade.C)


def test_a_run_in_which_everything_failed_is_told_without_a_curve():
    conclusion = make_conclusion(
        Verdict.INCONCLUSIVE,
        regimes=(),
        reasons=(Reason.BACKEND_FAILURES,),
        baseline=None,
        certificate=None,
        phases=None,
        counts=Counts(trials=1, failed=1, dropped=0),
    )
    text = printed(make_run((make_trial(64, None),)), conclusion)
    assert "INCONCLUSIVE" in text
    assert "1 trial measured, 1 failed" in text
    assert "median" not in text


class Engine(NamedTuple):
    name: str
    state: str
    install: str
    description: str


def test_engines_show_how_to_install_what_is_missing():
    file = io.StringIO()
    print_engines(
        Console(file=file, width=80),
        [
            Engine("hf", "installed", "pip install 'regimescope[hf]'", "transformers"),
            Engine("[b]odd", "missing", "pip install 'regimescope[mlx]'", "unseen"),
        ],
    )
    text = file.getvalue()
    assert "transformers" in text
    assert "regimescope[hf]" not in text
    assert "[b]odd" in text
    assert "pip install 'regimescope[mlx]'" in text
    assert "unseen" not in text
