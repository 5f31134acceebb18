"""What a CI job reads of a policy check, and that no name gets out of its place."""

import io
import xml.etree.ElementTree as ET

from rich.console import Console

from regimescope.analysis.policy import Finding, PolicyResult
from regimescope.report.check_output import print_check, to_annotations, to_junit, to_markdown

HOSTILE = 'run|`a`</x>"\n::error::%0A\x1b[31m'
FINDINGS = (
    Finding(rule="slowdown", outcome="broken", message="SPIKE at budget 512 to 639, 10.0x"),
    Finding(rule="tpot_change", outcome="inconclusive", message="cannot, be: 100 %\nreally"),
    Finding(rule="verdict", outcome="met", message="the verdict is SPIKE"),
)


def result(run="run", baseline=None):
    return PolicyResult(run=run, outcome="broken", findings=FINDINGS, baseline=baseline)


def test_every_rule_is_a_case_and_what_is_open_is_not_passed():
    root = ET.fromstring(to_junit(result()))
    suite = root.find("testsuite")
    assert suite.attrib == {
        "name": "run", "tests": "3", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"slowdown": ["failure"], "tpot_change": ["skipped"], "verdict": []}
    assert suite[0][0].get("message") == FINDINGS[0].message


def test_a_hostile_name_stays_inside_every_form():
    hostile = result(HOSTILE, HOSTILE)
    root = ET.fromstring(to_junit(hostile))
    assert len(root) == 1
    assert "\x1b" not in to_junit(hostile)
    markdown = to_markdown(hostile).splitlines()
    assert markdown[2].count("`") == 4
    assert all(line.startswith("|") for line in markdown[4:])
    commands = to_annotations(hostile).splitlines()
    assert len(commands) == 2
    assert all(line.startswith(("::error title=", "::warning title=")) for line in commands)


def test_a_cell_of_a_table_stays_one_cell():
    bad = Finding(rule="verdict", outcome="met", message="a | b <b>x</b> [l](u)")
    text = to_markdown(PolicyResult(run="r", outcome="met", findings=(bad,)))
    row = text.splitlines()[-1]
    assert row.replace("\\|", "").count("|") == 4
    assert "\\<b\\>" in row
    assert "\\[l\\]" in row


def test_annotations_escape_and_leave_out_what_is_met():
    lines = to_annotations(result()).splitlines()
    assert lines[0] == (
        "::error title=regimescope slowdown::run: SPIKE at budget 512 to 639, 10.0x"
    )
    assert lines[1].startswith("::warning title=regimescope tpot_change::")
    assert "100 %25" in lines[1]
    assert to_annotations(PolicyResult(run="r", outcome="met", findings=FINDINGS[2:])) == ""


def test_the_terminal_shows_the_outcome_and_every_rule_within_its_width():
    file = io.StringIO()
    print_check(Console(file=file, width=40), result())
    lines = file.getvalue().splitlines()
    assert lines[0] == "run: policy broken"
    assert all(len(line) <= 40 for line in lines)
    for finding in FINDINGS:
        assert any(finding.rule in line and finding.outcome in line for line in lines)
