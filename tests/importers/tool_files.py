"""Files as other tools write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regimescope.reasons import Reason
from regimescope.records import Trial

SAMPLES = Path(__file__).parent / "samples"


def reasons(trial: Trial) -> set[Reason]:
    """Return the reason codes of a trial."""
    return set(trial.reasons or ())


def written(folder: Path, name: str, table: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(table))
    return path


def lines(folder: Path, records: list[Mapping[str, Any]], name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
