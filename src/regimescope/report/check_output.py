"""The result of a policy check for people, Markdown, JUnit and GitHub. Layer: report.

Names of runs come from folders that a stranger may have made, so that every form escapes them.
"""

from __future__ import annotations

import re
from html import escape

from rich.console import Console

from regimescope.analysis.policy import Finding, PolicyResult
from regimescope.report.compare_text import print_hanging
from regimescope.report.escaping import plain

_STYLES = {"met": "bold green", "broken": "bold red", "inconclusive": "bold yellow"}
# What GitHub calls a finding that must be seen, and one that should be.
_LEVELS = {"broken": "error", "inconclusive": "warning"}


def print_check(console: Console, result: PolicyResult) -> None:
    """Print the outcome and every rule with what became of it."""
    print_hanging(console, f"{plain(result.run)}: policy {result.outcome}", _STYLES[result.outcome])
    for finding in result.findings:
        print_hanging(console, f"  {finding.outcome:<12}  {finding.rule}: {plain(finding.message)}")


def to_markdown(result: PolicyResult) -> str:
    """Return a summary for the page of a CI job."""
    against = f", against `{_code(result.baseline)}`" if result.baseline else ""
    rows = [
        f"| {finding.outcome} | {finding.rule} | {_cell(finding.message)} |"
        for finding in result.findings
    ]
    return "\n".join(
        [
            f"### regimescope: policy {result.outcome}",
            "",
            f"`{_code(result.run)}`{against}",
            "",
            "| outcome | rule | what was seen |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def to_junit(result: PolicyResult) -> str:
    """Return JUnit XML: a test case per rule; one that is inconclusive is skipped, not passed."""
    broken = sum(finding.outcome == "broken" for finding in result.findings)
    skipped = sum(finding.outcome == "inconclusive" for finding in result.findings)
    counts = f'tests="{len(result.findings)}" failures="{broken}" errors="0" skipped="{skipped}"'
    name = _attribute(result.run)
    cases = "\n".join(_case(finding, result.run) for finding in result.findings)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="regimescope" {counts}>\n'
        f"  <testsuite name={name} {counts}>\n{cases}\n  </testsuite>\n</testsuites>\n"
    )


def to_annotations(result: PolicyResult) -> str:
    """Return workflow commands that GitHub shows beside a job; empty where all is met."""
    return "".join(
        f"::{_LEVELS[finding.outcome]} title={_property(f'regimescope {finding.rule}')}::"
        f"{_data(plain(f'{result.run}: {finding.message}'))}\n"
        for finding in result.findings
        if finding.outcome in _LEVELS
    )


def _case(finding: Finding, run: str) -> str:
    """Return the test case of one rule."""
    numbered = f"    <testcase classname={_attribute(run)} name={_attribute(finding.rule)}"
    message = _attribute(finding.message)
    if finding.outcome == "broken":
        said = escape(_xml(finding.message))
        return f"{numbered}><failure message={message}>{said}</failure></testcase>"
    if finding.outcome == "inconclusive":
        return f"{numbered}><skipped message={message}/></testcase>"
    return f"{numbered}/>"


def _attribute(text: str) -> str:
    """Return text as the quoted value of an attribute."""
    return f'"{escape(_xml(text))}"'


def _xml(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", plain(text))


def _code(text: str) -> str:
    """Return text that stays inside a code span."""
    return plain(text).replace("`", "'").replace("|", "/")


def _cell(text: str) -> str:
    """Return text that stays text inside a cell of a Markdown table."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", plain(text))


def _data(text: str) -> str:
    """Escape the message of a workflow command, which ends at a line break."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
