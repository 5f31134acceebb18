"""Check the documentation against the program: command lines and links.

Every ``regimescope ...`` line in a fenced code block of README.md and docs/ must name a command
and options that exist; every relative link must lead to a file. Nothing is executed. Prints one
``file:line: problem`` per finding and ends with status 1 if there are any.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = "regimescope"
ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(r"^\s*(?P<marks>`{3,}|~{3,})")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
# A prompt in a console block, or the key of a CI step.
_LEAD = re.compile(r"^\s*(?:-\s+)?(?:[$%]\s+|run:\s+)?")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
_OPERATORS = frozenset({"|", "||", "&&", "&", ";"})
_REDIRECTION = re.compile(r"^\d?(?:>>?|<)(?:&\d)?(?P<target>.*)$")


class Line(NamedTuple):
    """One line of a Markdown file; ``number`` counts from 1."""

    number: int
    text: str
    in_code: bool


def main() -> int:
    """Check all pages and return the exit status."""
    root_command = _load_root_command()
    if root_command is None:
        return 1
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    findings: list[str] = []
    commands = 0
    for page in pages:
        lines = list(read_lines(page.read_text(encoding="utf-8")))
        place = page.relative_to(ROOT)
        for number, words in find_calls(lines):
            commands += 1
            problem = find_problem(root_command, words)
            if problem:
                findings.append(f"{place}:{number}: {problem}")
        findings += [f"{place}:{number}: {text}" for number, text in broken_links(page, lines)]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"{len(pages)} pages, {commands} command lines, {len(findings)} problems")
    return 1 if findings else 0


def _load_root_command() -> Any:
    """Return the command tree of the program, or None after saying why there is none."""
    try:
        import typer.main

        from regimescope.cli import app
    except ImportError as error:
        print(f"regimescope.cli:app cannot be loaded: {error}", file=sys.stderr)
        return None
    return typer.main.get_command(app)


def read_lines(text: str) -> Iterator[Line]:
    """Yield the lines of a Markdown text, fence lines left out."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        marks = match["marks"] if match else ""
        if fence and marks.startswith(fence):
            fence = ""
        elif marks and not fence:
            fence = marks
        else:
            yield Line(number, line, in_code=bool(fence))


def find_calls(lines: list[Line]) -> Iterator[tuple[int, list[str]]]:
    """Yield each call of the program in code blocks: its line number and the words after it."""
    for number, text in _join_continuations(lines):
        if PROGRAM not in text:
            continue
        text = _LEAD.sub("", text, count=1)
        try:
            words = shlex.split(text, comments=True)
        except ValueError:  # an unclosed quote, as an apostrophe in a line of output
            words = text.split()
        for simple in _split_at_operators(words):
            call = _arguments_of_call(simple)
            if call is not None:
                yield number, call


def _join_continuations(lines: list[Line]) -> Iterator[tuple[int, str]]:
    pending = ""
    start = 0
    for line in lines:
        if not line.in_code:
            pending = ""
            continue
        if not pending:
            start = line.number
        if line.text.endswith("\\"):
            pending += line.text[:-1] + " "
            continue
        yield start, pending + line.text
        pending = ""


def _split_at_operators(words: list[str]) -> Iterator[list[str]]:
    simple: list[str] = []
    for word in words:
        if word in _OPERATORS:
            yield simple
            simple = []
        elif word.endswith(";"):
            yield [*simple, word[:-1]]
            simple = []
        else:
            simple.append(word)
    yield simple


def _arguments_of_call(words: list[str]) -> list[str] | None:
    """Return the arguments if this simple command runs the program, otherwise None."""
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if len(words) > 2 and words[1] == "-m" and words[2].split(".")[0] == PROGRAM:
        words = words[2:]
    elif not words or words[0].rsplit("/", 1)[-1] != PROGRAM:
        return None
    return _without_redirections(words[1:])


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip_target = False
    for word in words:
        match = _REDIRECTION.match(word)
        if skip_target:
            skip_target = False
        elif match:
            skip_target = not match["target"] and "&" not in word
        else:
            kept.append(word)
    return kept


def find_problem(command: Any, words: list[str]) -> str | None:
    """Return what is wrong with a call, None if it parses.

    Subcommands, names of options, presence of their values and the number of positional arguments
    are checked. Usage notation is understood: ``[MODEL]``, ``[--json]`` and ``on|off``.
    """
    path = [PROGRAM]
    positionals = 0
    rest = [word.strip("[]") for word in words]
    while rest:
        word = rest.pop(0)
        commands = getattr(command, "commands", None)
        if word.startswith("-") and word != "-":
            problem = _take_option(command, word, rest)
            if problem:
                return f"{' '.join(path)}: {problem}"
        elif commands is None:
            positionals += 1
        elif word in commands:
            command = commands[word]
            path.append(word)
        else:
            return f"{' '.join(path)}: there is no command {word!r} (known: {', '.join(commands)})"
    problem = None if "--help" in words else _count_problem(command, positionals)
    return f"{' '.join(path)}: {problem}" if problem else None


def _take_option(command: Any, word: str, rest: list[str]) -> str | None:
    """Remove the value of an option from ``rest``; return what is wrong, if anything."""
    name, _, value = word.partition("=")
    if name == "--help":
        return None
    options = {
        spelling: parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    parameter = options.get(name)
    if parameter is None:
        return f"there is no option {name} (known: {', '.join(sorted(options))})"
    if parameter.is_flag or parameter.count:
        return f"option {name} takes no value" if value else None
    if not value and (not rest or rest.pop(0).startswith("--")):
        return f"option {name} needs a value"
    return None


def _count_problem(command: Any, positionals: int) -> str | None:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    least = sum(1 for argument in arguments if argument.required)
    if positionals < least:
        return f"{positionals} arguments given, at least {least} needed"
    if all(argument.nargs > 0 for argument in arguments):
        most = sum(argument.nargs for argument in arguments)
        if positionals > most:
            return f"{positionals} arguments given, at most {most} taken"
    return None


def broken_links(page: Path, lines: list[Line]) -> Iterator[tuple[int, str]]:
    """Yield the relative links of a page that lead nowhere."""
    for line in lines:
        if line.in_code:
            continue
        for match in _LINK.finditer(line.text):
            target = match["target"].split("#")[0]
            if not target or "://" in target or target.startswith("mailto:"):
                continue
            if not (page.parent / target).exists():
                yield line.number, f"the link leads nowhere: {target}"


if __name__ == "__main__":
    sys.exit(main())
