"""What is refused as no single measurement, and how the refusal helps to tell the parts apart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from regimescope.analysis.refusals import refuse_duplicate_ids, refuse_mixed_series
from regimescope.errors import InputError
from regimescope.reasons import Reason
from regimescope.records import Cell, Series, Trial


def trial(name: str, occasion: str, model: str | None = "a", prompt: int = 8) -> Trial:
    return Trial(
        trial_id=name,
        occasion=occasion,
        series=Series(engine="e", model=model),
        cell=Cell(budget=64, prompt_tokens=prompt),
        status="ok",
        warmup=False,
        phase="decode",
        decode_s=1.0,
    )


def test_series_are_named_with_the_files_they_are_in() -> None:
    trials = [trial("1", "0:first.csv"), trial("2", "1:second.csv", model=None, prompt=9)]
    with pytest.raises(InputError) as refused:
        refuse_mixed_series(trials, "budget")
    assert refused.value.reason is Reason.MIXED_SERIES
    message = str(refused.value)
    assert "model (a in 0:first.csv, unknown in 1:second.csv)" in message
    assert "prompt tokens (8 in 0:first.csv, 9 in 1:second.csv)" in message


def test_series_of_one_file_are_told_by_their_values() -> None:
    trials = [trial("1", "only"), trial("2", "only", model="b")]
    with pytest.raises(InputError, match=r"differ in model \(a, b\)\."):
        refuse_mixed_series(trials, "budget")


def test_the_swept_value_makes_no_series() -> None:
    other = replace(trial("2", "o"), cell=Cell(budget=128, prompt_tokens=8))
    refuse_mixed_series([trial("1", "o"), other], "budget")
    with pytest.raises(InputError, match="budget"):
        refuse_mixed_series([trial("1", "o"), other], "prompt")


def test_one_id_twice_is_refused() -> None:
    with pytest.raises(InputError, match="x"):
        refuse_duplicate_ids([trial("x", "o"), trial("x", "p")])
    refuse_duplicate_ids([trial("x", "o"), trial("y", "o")])
