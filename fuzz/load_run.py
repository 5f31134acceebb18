"""Fuzz the loading of run folders: no crash but the named error, nothing touched outside.

``make fuzz`` runs it with a million inputs. An input is a letter, which says the file it stands
for, and the content of that file; the other files are those of a recorded run, of the present
schema version or, for a capital letter, of the first one. While a folder is
loaded an audit hook watches what Python opens, imports, compiles and starts: anything but reading
the three files is a finding, like any exception but ``RunFolderError``. Arguments are those of
libFuzzer, such as ``-runs=1000000 -seed=1``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import atheris

with atheris.instrument_imports(include=["regimescope.store", "regimescope.records"]):
    from regimescope.errors import RunFolderError
    from regimescope.records import SCHEMA_VERSION
    from regimescope.store import EVENTS, HEADER, TRIALS, load_run

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "formats" / "data"
FINDINGS = Path("build") / "fuzz"
FILES = {b"h": HEADER, b"t": TRIALS, b"e": EVENTS}
# Enough of each kind of line to start from; longer seeds only slow the search down.
SEED_LINES = 1
# Half of the mutations work on bytes; a walk into a value ends early now and then.
BYTES_SHARE, STOP_SHARE, RECORDED_SHARE = 0.5, 0.2, 0.3
NAMES = ("schema_version", "facts", "env", "stage", "expectation", "itl_s", "cell", "budget", "x")
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2, 3, 99, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40),
    *(0.0, -0.0, 1e-320, 1e308, float("nan"), float("inf"), -1.5),
    *("", "ok", "budget", "\x00", "\u202e", "\ud800", "../../x", "<script>", "a" * 300),
    *([], {}, [[]], [None], ["x"], {"": {}}, [1, "2", None], {"block": 0}, {"budget": 10**20}),
)
# What a folder that is read must never cause.
FORBIDDEN = ("exec", "compile", "import", "os.system", "subprocess.Popen", "socket.connect")


class Outside(Exception):
    """Loading a folder did something else than reading its files."""


class Watch:
    """An audit hook that is strict while a folder is loaded and takes no notice otherwise."""

    def __init__(self) -> None:
        """Start without a folder."""
        self._inside: str | None = None

    @contextmanager
    def on(self, folder: Path) -> Iterator[None]:
        """Be strict meanwhile."""
        self._inside = str(folder) + os.sep
        try:
            yield
        finally:
            self._inside = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise for what is forbidden."""
        if self._inside is None:
            return
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path, _, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes or not os.fsdecode(path).startswith(self._inside):
                raise Outside(f"opened {path!r}")
        elif event in FORBIDDEN:
            raise Outside(f"{event} {arguments!r}")


class Harness:
    """A folder whose files are exchanged for those of an input, and loaded."""

    def __init__(self, folder: Path) -> None:
        """Take the files of recorded runs, shortened."""
        self._folder = folder
        self._watch = Watch()
        self._written: dict[str, bytes] = {}
        self._recorded = {False: recorded(SCHEMA_VERSION), True: recorded(1)}
        for seed in _inputs():  # the library prepares its decoders when they are first used
            self(seed)
        sys.addaudithook(self._watch)

    def __call__(self, content: bytes) -> None:
        """Load the folder with one file exchanged; anything but a named error is raised."""
        letter = content[:1]
        exchanged = FILES.get(letter.lower(), TRIALS)
        for name, usual in self._recorded[letter.isupper()].items():
            self._put(name, content[1:] if name == exchanged else usual)
        with self._watch.on(self._folder):
            try:
                load_run(self._folder)
            except RunFolderError as error:
                if str(self._folder) not in error.message or not error.remedy:
                    raise Outside(f"an error without file or remedy: {error}") from error

    def _put(self, name: str, content: bytes) -> None:
        """Write a file, unless it holds just that already."""
        if self._written.get(name) != content:
            (self._folder / name).write_bytes(content)
            self._written[name] = content


def mutate(content: bytes, most: int, seed: int) -> bytes:
    """Change an input: its bytes, or a value somewhere in it, so that it stays JSON.

    Changed bytes hardly ever get past the decoder; what comes after it wants testing too. Now and
    then a recorded file is changed instead, since short inputs crowd it out of the corpus.
    """
    random = Random(seed)  # noqa: S311 - a choice of mutations is no secret
    if random.random() < RECORDED_SHARE:
        content = random.choice(_inputs())
    letter, lines = content[:1], content[1:].splitlines(keepends=True)
    if random.random() < BYTES_SHARE or not lines:
        return bytes(atheris.Mutate(content, most))
    at = random.randrange(len(lines))
    try:
        table = json.loads(lines[at])
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(content, most))
    _change(table, random)
    lines[at] = json.dumps(table).encode() + b"\n"
    return (letter + b"".join(lines))[:most]


def _change(value: Any, random: Random) -> None:
    """Walk down a random way and exchange, add or remove what is there."""
    while isinstance(value, (dict, list)) and value:
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], (dict, list)) or random.random() < STOP_SHARE:
            break
        value = value[key]
    else:
        return
    choice = random.randrange(4)
    if choice == 0:
        del value[key]
    elif choice == 1 and isinstance(value, dict):
        value[random.choice(NAMES)] = value[key]
    else:
        value[key] = random.choice(VALUES)


@cache
def _inputs() -> tuple[bytes, ...]:
    """Return inputs to start from: every recorded file of both versions."""
    present, first = recorded(SCHEMA_VERSION), recorded(1)
    return (
        *(letter + present[name] for letter, name in FILES.items()),
        *(letter.upper() + first[name] for letter, name in FILES.items()),
    )


def recorded(version: int) -> dict[str, bytes]:
    """Return the files of a recorded run, with a short plan and few lines."""
    folder = RECORDED / f"schema_{version}"
    header = json.loads((folder / HEADER).read_bytes())
    header["plan"]["processes"] = [
        process | {"trials": process["trials"][:SEED_LINES]}
        for process in header["plan"]["processes"][:1]
    ]
    return {
        HEADER: json.dumps(header).encode(),
        TRIALS: _first_lines(folder / TRIALS),
        EVENTS: _first_lines(folder / EVENTS),
    }


def _first_lines(file: Path) -> bytes:
    """Return the beginning of a file of lines."""
    return b"".join(file.read_bytes().splitlines(keepends=True)[:SEED_LINES])


def main() -> None:
    """Write the seeds and hand over to libFuzzer, which ends the program."""
    # Memory rather than a disk, where there is such a place: each input is written to files, in a
    # folder of our own.
    memory = Path("/dev/shm")  # noqa: S108 # nosec B108
    base = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        folder, corpus = base / "run", base / "corpus"
        folder.mkdir()
        corpus.mkdir()
        harness = Harness(folder)
        for number, seed in enumerate(_inputs()):
            (corpus / f"{number}").write_bytes(seed)
        FINDINGS.mkdir(parents=True, exist_ok=True)
        limits = [
            "-timeout=20",
            "-rss_limit_mb=3072",
            "-len_control=0",
            f"-artifact_prefix={FINDINGS}/",
        ]
        atheris.Setup([*sys.argv, *limits, str(corpus)], harness, custom_mutator=mutate)
        atheris.Fuzz()
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
