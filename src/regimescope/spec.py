"""What is asked for: frozen, without behavior, unknown keys refused. Layer: above ``stats``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from regimescope.errors import SpecError
from regimescope.units import listing

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the standard library gained a TOML reader in 3.11
    import tomli as tomllib

# The observer arm is planned by --observer, never asked for by name.
Arm = Literal["warm", "fresh", "observer"]
Axis = Literal["budget", "context", "prompt", "capacity", "batch", "time"]
Isolation = Literal["auto", "process", "inline"]
KvCache = Literal["on", "off"]
Mode = Literal["independent", "nested"]
Order = Literal["random", "ascending", "descending"]

DEFAULT_ENGINE = "hf"
DEFAULT_MODEL = "gpt2"
# The paper's coarse grid: multiples of 128 up to 768 (arXiv 2605.08913), halved so that six
# budgets, the least that sections 4 and 15 of the method work with, come with room to spare.
DEFAULT_BUDGETS = tuple(range(64, 769, 64))
# A generation of 2**20 tokens is beyond every model and every patience; larger is a typing error.
MAX_BUDGET = 2**20
MAX_BUDGETS = 10_000


class ScanSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scan of one model on one device. Durations in seconds, lengths in tokens.

    Attributes:
        engine: Name of the engine.
        model: Built-in architecture, path, or hub id, as the engine understands it.
        device: Device name, or ``auto`` for the best one present.
        dtype: Element type of weights and cache.
        axis: The swept quantity; the others are recorded and held fixed.
        budgets: Decoding budgets, each at least 2, strictly ascending.
        prompt_tokens: Tokens of the prompt, at least 1.
        kv_cache: Whether the engine keeps keys and values between steps.
        batch: Sequences decoded together.
        arms: ``warm``: a process per block; ``fresh``: a process per trial. Analyzed apart.
        mode: ``independent``: one generation per budget; ``nested``: one long generation,
            whose steps are analyzed by context length.
        order: Order of the budgets within a block; anything but random mixes budget and time.
        processes: Process runs of each arm; the unit of replication.
        repeats: Blocks per process run, each a visit to every budget in random order.
        seed: Seed of order, prompts and random weights.
        warm_up_s: Least wall time of the warm-up at the start of a process (method, 1.5).
        trial_timeout_s: Longest time one trial may take before its process is ended; less where
            the warm-up has shown how fast the model is.
        sentinel_every: Trials between two visits to the sentinel, a fixed small budget that shows
            when the machine changes its speed; 0 for none.
        observer: Whether to measure what stamping every token costs, at three budgets.
        max_seconds: Wall time after which no further trial is started; absent for no limit.
        max_tokens: Decoded tokens, warm-ups included, beyond which none is started.
        isolation: ``process`` measures in a child process; ``inline`` in this one, which only
            engines with a virtual clock allow; ``auto`` picks.
        engine_options: Raw table for the engine, decoded by the engine itself.
    """

    engine: str = DEFAULT_ENGINE
    model: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: str = "float32"
    axis: Axis = "budget"
    budgets: tuple[int, ...] = DEFAULT_BUDGETS
    prompt_tokens: int = 65
    kv_cache: KvCache = "on"
    batch: int = 1
    arms: tuple[Arm, ...] = ("warm",)
    mode: Mode = "independent"
    order: Order = "random"
    processes: int = 3
    repeats: int = 1
    seed: int = 0
    warm_up_s: float = 3.0
    trial_timeout_s: float = 3600.0
    sentinel_every: int = 5
    observer: bool = False
    max_seconds: float | None = None
    max_tokens: int | None = None
    isolation: Isolation = "auto"
    engine_options: dict[str, Any] = msgspec.field(default_factory=dict)


def make_spec(options: Mapping[str, Any]) -> ScanSpec:
    """Return a spec from the options of a command line.

    Args:
        options: Keys of ``ScanSpec``; ``budgets`` as text; ``engine_option`` as a list of
            ``NAME=VALUE``. Other keys are passed over.

    Raises:
        SpecError: A value is not one of the choices, or a text cannot be read.
    """
    table = {name: options[name] for name in ScanSpec.__struct_fields__ if name in options}
    table["budgets"] = parse_budgets(options["budgets"])
    table["arms"] = parse_arms(options.get("arms", "warm"))
    table["engine_options"] = parse_engine_options(options.get("engine_option") or ())
    _check_choices(table)
    spec = msgspec.convert(table, ScanSpec)
    check_spec(spec)
    return spec


_CHOICES: dict[str, tuple[str, ...]] = {
    "isolation": get_args(Isolation),
    "kv_cache": get_args(KvCache),
    "mode": get_args(Mode),
    "order": get_args(Order),
}


def _check_choices(table: Mapping[str, Any]) -> None:
    """Refuse a setting that is not one of its choices."""
    for name, choices in _CHOICES.items():
        if table.get(name, choices[0]) not in choices:
            raise SpecError(
                f"--{name.replace('_', '-')} {table[name]!r} is not known.",
                remedy=f"Choose one of: {listing(choices)}.",
            )


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


def parse_budgets(text: str) -> tuple[int, ...]:
    """Read budgets written as ``START:STOP:STEP`` (STOP included) or as a list ``A,B,C``.

    Args:
        text: Whole numbers of tokens. Parts of a list may themselves be ranges.

    Returns:
        The budgets, strictly ascending.

    Raises:
        SpecError: The text is empty, not numeric, reversed, duplicated, or a budget is not
            between 2 and 2**20.
    """
    values: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        values.extend(_range_of(part, text))
        if len(values) > MAX_BUDGETS:
            raise SpecError(
                f"--budgets {text!r} asks for more than {MAX_BUDGETS:,} budgets.",
                remedy="Use a wider step.",
            )
    check_budgets(values, where=f"--budgets {text!r}")
    return tuple(values)


def _range_of(part: str, text: str) -> range | list[int]:
    """Return the budgets of one list element, a number or a range with both ends included."""
    try:
        numbers = [int(piece) for piece in part.split(":")]
    except ValueError as error:
        raise SpecError(
            f"--budgets {text!r}: {part!r} is not a whole number or START:STOP:STEP.",
            remedy="Write for example 128:768:128, or 64,96,128.",
        ) from error
    if len(numbers) == 1:
        return numbers
    if len(numbers) != 3:
        raise SpecError(
            f"--budgets {text!r}: {part!r} needs three numbers, START:STOP:STEP.",
            remedy="Write for example 128:768:128.",
        )
    start, stop, step = numbers
    if step <= 0:
        raise SpecError(
            f"--budgets {text!r}: the step of {part!r} must be 1 or more.",
            remedy="Write for example 128:768:128.",
        )
    if stop < start:
        raise SpecError(
            f"--budgets {text!r}: the range {part!r} is reversed.",
            remedy=f"Write {stop}:{start}:{step}.",
        )
    if (stop - start) // step >= MAX_BUDGETS:
        raise SpecError(
            f"--budgets {text!r} asks for more than {MAX_BUDGETS:,} budgets.",
            remedy="Use a wider step.",
        )
    return range(start, stop + 1, step)


def check_budgets(budgets: list[int] | tuple[int, ...], *, where: str) -> None:
    """Refuse budgets that cannot be measured.

    Args:
        budgets: Decoding budgets in tokens.
        where: How the error message names the input.

    Raises:
        SpecError: No budget, one below 2 or above 2**20, duplicates, or not ascending.
    """
    if not budgets:
        raise SpecError(f"{where} names no budget.", remedy="Write for example 128:768:128.")
    bad = [value for value in budgets if value < 1]
    if bad:
        raise SpecError(
            f"{where}: budgets must be positive; got {listing(bad)}.",
            remedy="A decoding budget is a number of tokens to generate, 2 or more.",
        )
    if 1 in budgets:
        raise SpecError(
            f"{where}: a budget of 1 token has no decode step to time.",
            remedy="Start at 2 or more.",
        )
    if max(budgets) > MAX_BUDGET:
        raise SpecError(
            f"{where}: {max(budgets):,} tokens is beyond the largest budget, {MAX_BUDGET:,}.",
            remedy="Use a smaller budget.",
        )
    duplicates = sorted({value for value in budgets if budgets.count(value) > 1})
    if duplicates:
        raise SpecError(
            f"{where}: duplicated budgets: {listing(duplicates)}.",
            remedy="Name each budget once; use --repeats to measure a budget again.",
        )
    if list(budgets) != sorted(budgets):
        raise SpecError(
            f"{where}: the budgets are not in ascending order.",
            remedy="Sort them; the order of measuring is random anyway.",
        )


def check_spec(spec: ScanSpec) -> None:
    """Refuse a spec whose values are out of range, before an engine is looked up.

    Raises:
        SpecError: Naming the key and the bound.
    """
    check_budgets(spec.budgets, where="budgets")
    parse_arms(",".join(spec.arms))
    _check_choices({name: getattr(spec, name) for name in _CHOICES})
    for key, low, high in (
        ("prompt_tokens", 1, MAX_BUDGET),
        ("batch", 1, 4096),
        ("processes", 1, 1000),
        ("repeats", 1, 1000),
        ("seed", 0, 2**32 - 1),
        ("warm_up_s", 0, 3600),
        ("trial_timeout_s", 1, 7 * 86400),
        ("sentinel_every", 0, 1000),
        ("max_seconds", 1, 30 * 86400),
        ("max_tokens", 1, 10**12),
    ):
        value = getattr(spec, key)
        if value is not None and not low <= value <= high:
            raise SpecError(
                f"{key} is {value:,}, outside {low:,} to {high:,}.",
                remedy=f"Choose {key} within the range.",
            )
    if spec.axis != "budget":
        raise SpecError(
            f"axis {spec.axis!r} cannot be scanned; only 'budget' can.",
            remedy="Leave axis at 'budget'. Use mode 'nested' to see context lengths.",
        )


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


def to_command(spec: ScanSpec) -> list[str]:
    """Return the command line that measures a spec again; settings at their default are left out.

    The result contains what the user gave, such as a model path.
    """
    command = ["regimescope", "scan", spec.model, "--engine", spec.engine, "--device", spec.device]
    command += ["--dtype", spec.dtype, "--budgets", ",".join(map(str, spec.budgets))]
    default = ScanSpec()
    for key in _OPTIONS:
        value = getattr(spec, key)
        if value == getattr(default, key):
            continue
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            command.append(flag)
        else:
            command += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    for name, value in spec.engine_options.items():
        command += ["--engine-option", f"{name}={msgspec.json.encode(value).decode()}"]
    return command


_OPTIONS = (
    "prompt_tokens",
    "kv_cache",
    "batch",
    "arms",
    "mode",
    "order",
    "processes",
    "repeats",
    "seed",
    "warm_up_s",
    "trial_timeout_s",
    "sentinel_every",
    "observer",
    "max_seconds",
    "max_tokens",
    "isolation",
)
