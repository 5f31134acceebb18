"""Budgets as text: a list, a range with a step, a range to search. Layer: ``spec``."""

from __future__ import annotations

from regimescope.errors import SpecError
from regimescope.spec.scan_spec import Axis
from regimescope.units import listing

# A generation of 2**20 tokens is beyond every model and every patience; larger is a typing error.
MAX_BUDGET = 2**20
MAX_BUDGETS = 10_000
# A budget of one token has no decode step, and an empty prompt no prefill.
LEAST: dict[Axis, int] = {"budget": 2, "context": 0}


def parse_budgets(text: str, axis: Axis = "budget") -> tuple[int, ...]:
    """Read budgets written as ``START:STOP:STEP`` (STOP included) or as a list ``A,B,C``.

    Args:
        text: Whole numbers of tokens. Parts of a list may themselves be ranges.
        axis: What is swept; on another axis than the budget these are its values.

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
    check_budgets(values, where=f"--budgets {text!r}", axis=axis)
    return tuple(values)


def parse_span(text: str) -> tuple[int, int]:
    """Read a range written as ``LOW:HIGH``, both ends included.

    Raises:
        SpecError: The text is not two whole numbers, or they do not ascend.
    """
    try:
        low, high = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise SpecError(
            f"--range {text!r} is not LOW:HIGH.", remedy="Write for example --range 64:1024."
        ) from error
    if not low < high:
        raise ascent_error(low, high)
    return low, high


def ascent_error(low: int, high: int) -> SpecError:
    """Return the error for a range whose end is not above its start."""
    right = f"{high}:{low}" if high < low else "64:1024"
    return SpecError(
        f"--range {low}:{high} does not ascend.", remedy=f"Write for example --range {right}."
    )


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


def check_budgets(
    budgets: list[int] | tuple[int, ...], *, where: str, axis: Axis = "budget"
) -> None:
    """Refuse budgets, or values of another axis, that cannot be measured.

    Args:
        budgets: Decoding budgets in tokens, or positions on the axis.
        where: How the error message names the input.
        axis: What is swept.

    Raises:
        SpecError: No value, one below the least of the axis or above 2**20, duplicates, or not
            ascending.
    """
    if not budgets:
        raise SpecError(f"{where} names no budget.", remedy="Write for example 128:768:128.")
    if axis != "budget" and min(budgets) < LEAST.get(axis, 1):
        raise SpecError(
            f"{where}: the axis {axis} starts at {LEAST.get(axis, 1)}; got {min(budgets)}.",
            remedy="Leave out the smaller values.",
        )
    bad = [value for value in budgets if value < 1 and axis == "budget"]
    if bad:
        raise SpecError(
            f"{where}: budgets must be positive; got {listing(bad)}.",
            remedy="A decoding budget is a number of tokens to generate, 2 or more.",
        )
    if axis == "budget" and 1 in budgets:
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
