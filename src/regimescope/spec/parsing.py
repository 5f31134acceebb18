"""A spec from the options of a command line or from a TOML file. Layer: ``spec``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from regimescope.errors import SpecError
from regimescope.spec.budgets import parse_budgets, parse_span
from regimescope.spec.checks import check_choices, check_spec
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
    table["budgets"] = () if options.get("budgets") is None else parse_budgets(options["budgets"])
    if options.get("span") is not None:
        table["low"], table["high"] = parse_span(options["span"])
    table["arms"] = parse_arms(options.get("arms", "warm"))
    table["engine_options"] = parse_engine_options(options.get("engine_option") or ())
    check_choices(table)
    spec = msgspec.convert(table, ScanSpec)
    check_spec(spec)
    return spec


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Read the names of arms, separated by commas.

    Raises:
        SpecError: A name is unknown or comes twice, or there is none.
    """
    known: dict[str, Arm] = {"warm": "warm", "fresh": "fresh"}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names) or set(names) - known.keys():
        raise SpecError(
            f"--arms {text!r} is not a list of different arms.",
            remedy=f"Name one or more of: {listing(known)}.",
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
