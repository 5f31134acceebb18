"""A spec from the options of a command line or from a TOML file. Layer: ``spec``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from regimescope.errors import SpecError
from regimescope.spec.budgets import parse_budgets, parse_span
from regimescope.spec.checks import (
    check_budget,
    check_choices,
    check_fixed_only,
    check_spec,
    option,
)
from regimescope.spec.scan_spec import Arm, ScanSpec
from regimescope.units import listing

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the standard library gained a TOML reader in 3.11
    import tomli as tomllib


def make_spec(options: Mapping[str, Any]) -> ScanSpec:
    """Return a spec from the options of a command line.

    Args:
        options: Keys of ``ScanSpec``; ``budgets`` and ``span`` as text; ``engine_option`` as a
            list of ``NAME=VALUE``. Other keys are passed over.

    Raises:
        SpecError: A value is not one of the choices, or a text cannot be read.
    """
    table = {name: options[name] for name in ScanSpec.__struct_fields__ if name in options}
    table["budgets"] = (
        ()
        if options.get("budgets") is None
        else parse_budgets(options["budgets"], table.get("axis", "budget"))
    )
    if options.get("span") is not None:
        table["low"], table["high"] = parse_span(options["span"])
    arms = options.get("arms", "warm")
    if not table["budgets"] and arms != "warm":
        check_fixed_only(["arms"])
    table["arms"] = parse_arms(arms)
    table["engine_options"] = parse_engine_options(options.get("engine_option") or ())
    table["engine_options"] |= _own_flags(options, table["engine_options"])
    check_choices(table)
    check_budget(table.get("axis", "budget"), table.get("budget"))
    if table.get("budget") is None:
        table.pop("budget", None)
    spec = msgspec.convert(table, ScanSpec)
    check_spec(spec)
    return spec


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Read the names of arms, separated by commas; ``both`` stands for the two of them.

    Raises:
        SpecError: A name is unknown or comes twice, or there is none.
    """
    known: dict[str, Arm] = {"warm": "warm", "fresh": "fresh"}
    if text.strip() == "both":
        return tuple(known.values())
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names) or set(names) - known.keys():
        raise SpecError(
            f"--arms {text!r} is not a list of different arms.",
            remedy=f"Choose from: {listing([*known, 'both'])}.",
        )
    return tuple(known[name] for name in names)


def parse_engine_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` pairs; a value that is JSON counts as such, any other as text.

    Raises:
        SpecError: A pair has no ``=`` or a name comes twice.
    """
    table: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise SpecError(
                f"--engine-option {pair!r} is not NAME=VALUE.",
                remedy="Write for example threads=1.",
            )
        if name in table:
            raise SpecError(f"--engine-option {name!r} is given twice.", remedy="Give it once.")
        try:
            table[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            table[name] = text
    return table


def _own_flags(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the engine that have a flag of their own, as far as they are set.

    Raises:
        SpecError: One is set both ways, or code of others would be run without the flag for it.
    """
    flags = {name: options.get(name) for name in ("positions", "concurrency")}
    if options.get("trust_remote_code"):
        flags["trust_remote_code"] = True
    table = {name: value for name, value in flags.items() if value is not None}
    if "trust_remote_code" in given:
        raise SpecError(
            "--engine-option trust_remote_code is not taken: running code that comes with a model "
            "has a flag of its own.",
            remedy="Read that code; if you trust it, use --trust-remote-code.",
        )
    twice = [option(name) for name in table if name in given]
    if twice:
        raise SpecError(
            f"{listing(twice)} is given a second time as --engine-option.", remedy="Give it once."
        )
    return table


def load_spec(path: Path) -> ScanSpec:
    """Read a scan spec from a TOML file.

    Raises:
        SpecError: The file cannot be read, is not TOML, or has unknown or mistyped keys.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(table, ScanSpec)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}.", remedy="Name a readable file.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SpecError(f"{path}: {error}.", remedy="Correct the file.") from error
