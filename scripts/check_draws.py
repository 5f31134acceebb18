"""How often `check` is right: simulated machines with and without a regime, against a baseline.

    python scripts/check_draws.py [--draws 50] [--seed 0]

A draw is a baseline run of a clean machine, a run of the same machine with other seeds, and one of
the machine with a slow interval. All are whole searches. Writes its table into docs/check.md.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

from regimescope import ScanSpec, check, compare, scan

PAGE = Path(__file__).parent.parent / "docs" / "check.md"
BEGIN, END = "<!-- draws: begin -->", "<!-- draws: end -->"
NOISES = ("gauss", "skew", "heavy")
LOW, HIGH = 64, 512


def draw(number: int, seed: int, folder: Path) -> dict[str, tuple[str, str]]:
    """Return the outcome of the check and of the comparison, by kind of run."""
    random = np.random.default_rng([seed, number])
    noise = NOISES[number % len(NOISES)]
    onset = int(random.integers(160, 320))
    band = {"onset": onset, "recovery": onset + 96, "slowdown": float(random.choice([2.0, 10.0]))}

    def measured(name: str, bands: list[dict[str, float]], run_seed: int) -> Path:
        spec = ScanSpec(
            engine="simulated",
            model="smooth",
            low=LOW,
            high=HIGH,
            seed=run_seed,
            warm_up_s=0.1,
            engine_options={"noise": noise, "bands": bands},
        )
        scan(spec, out=folder / f"{name}{number}")
        return folder / f"{name}{number}"

    base = measured("base", [], 3 * number)
    found: dict[str, tuple[str, str]] = {}
    for offset, (name, bands) in enumerate({"noise": [], "regime": [band]}.items(), start=1):
        run = measured(name, bands, 3 * number + offset)
        verdict = compare(base, run)[0].verdict
        found[name] = (check(run, baseline=base).outcome, verdict)
    return found


def table(outcomes: dict[str, Counter[tuple[str, str]]], draws: int) -> list[str]:
    """Return the lines of the table."""
    lines = [
        "| machine | broken (status 3) | inconclusive (4) | met (0) | compared: changed / cannot "
        "tell / same |",
        "|---|---|---|---|---|",
    ]
    for name, counted in outcomes.items():
        checks, verdicts = Counter[str](), Counter[str]()
        for (outcome, verdict), times in counted.items():
            checks[outcome] += times
            verdicts[verdict] += times
        right = checks["broken"] if name == "regime" else draws - checks["broken"]
        low = stats.binomtest(right, draws).proportion_ci().low
        lines.append(
            f"| {'with a regime' if name == 'regime' else 'the same'} | {checks['broken']} | "
            f"{checks['inconclusive']} | {checks['met']} | {verdicts['changed']} / "
            f"{verdicts['cannot tell']} / {verdicts['same']} |"
        )
        what = "caught" if name == "regime" else "not accused"
        lines.append(f"| | {right} of {draws} {what}, 95 % bound {low:.2f} | | | |")
    return lines


def main() -> None:
    """Draw, count, write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    outcomes = {"noise": Counter[tuple[str, str]](), "regime": Counter[tuple[str, str]]()}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.draws):
            for name, found in draw(number, asked.seed, Path(folder)).items():
                outcomes[name][found] += 1
            print(number, {name: dict(found) for name, found in outcomes.items()}, flush=True)
    text = (
        f"{asked.draws} draws, seed {asked.seed}; noise {', '.join(NOISES)} in turn; slow by 2x or "
        f"10x over 96 budgets; searches of {LOW} to {HIGH}. `python scripts/check_draws.py`."
    )
    block = "\n".join([BEGIN, "", text, "", *table(outcomes, asked.draws), "", END])
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE} has no place for this table: {BEGIN} {END}")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: block, page), encoding="utf-8")
    print(block)


if __name__ == "__main__":
    main()
