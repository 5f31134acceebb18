"""The committed script regenerates the penalty table, and the table is what it says it is."""

import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from regimescope.stats.epidemic import EpidemicOptions, detect

SCRIPT = Path(__file__).parents[2] / "scripts" / "calibrate_lambda.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("calibrate_lambda", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table():
    return json.loads(files("regimescope.stats").joinpath("lambda_table.json").read_text())


def test_penalty_is_where_alarms_fall_to_the_rate(script):
    # Ten sweeps alarm up to penalties 1..10, one of them again between 20 and 30.
    low = np.array([*np.zeros(10), 20.0])
    high = np.array([*np.arange(1.0, 11.0), 30.0])
    ranges = script.Ranges(np.array([*range(10), 9]), low, high)
    assert script.alarm_penalty(ranges, 10, 0.3) == 7.0
    assert script.alarm_penalty(ranges, 10, 0.05) == 30.0
    nothing = script.Ranges(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    assert script.alarm_penalty(nothing, 10, 0.1) == 0.0


@pytest.mark.parametrize("cell", [(10, 1, 1), (10, 3, 2), (9, 2, 0)])
def test_simulated_alarms_are_those_of_the_detector(script, cell):
    n, repeats, degree = cell
    y, sigma = script.simulate(script.Cell(*cell), 40, np.random.default_rng(5))
    ranges = script.alarm_ranges(script.Cell(*cell), y, sigma, (0.0, np.inf))
    for lam in (0.5, 2.0, 4.0):
        inside = (ranges.low <= lam) & (lam < ranges.high)
        expected = set(ranges.sweep[inside].tolist())
        options = EpidemicOptions(lam=lam, r_min=1.0001, max_intervals=1, choose_degree=False)
        found = {
            k
            for k in range(40)
            if detect(
                np.linspace(64, 1024, n),
                y[k],
                repeats=np.full(n, repeats),
                sigma=sigma[k],
                degree=degree,
                options=options,
            ).intervals
        }
        # A wide interval lowers the degree in the detector alone; few sweeps may differ by that.
        assert len(found ^ expected) <= 2
        assert expected or lam > 2


@pytest.mark.parametrize("cell", [(6, 1, 1), (8, 3, 2)])
def test_a_small_run_agrees_with_the_table(script, table, cell):
    fresh = script.calibrate(script.Cell(*cell), 600)
    (kept,) = [c for c in table["cells"] if (c["n"], c["repeats"], c["degree"]) == cell]
    error = float(np.hypot(fresh["lam_se"], kept["lam_se"]))
    assert abs(fresh["lam"] - kept["lam"]) < 4 * error


def test_table_names_its_seed_and_the_sweeps_behind_each_entry(script, table):
    assert table["seed"] == script.SEED
    assert table["alarm_rate"] == script.ALARM_RATE
    for cell in table["cells"]:
        assert cell["nulls"] == script.NULLS[cell["n"]]
    expected = {
        (n, m, d)
        for n in script.SIZES
        for m in script.LARGE_REPEATS.get(n, script.REPEATS)
        for d in script.DEGREES
    }
    assert {(c["n"], c["repeats"], c["degree"]) for c in table["cells"]} == expected


def test_an_interrupted_run_goes_on_where_it_stopped(script, tmp_path, monkeypatch, capsys):
    out = tmp_path / "table.json"
    monkeypatch.setattr(script, "REPEATS", (1,))
    monkeypatch.setattr(script, "DEGREES", (0, 1))
    arguments = ["calibrate_lambda.py", "--out", str(out), "--share", "0.01", "--sizes", "6"]
    monkeypatch.setattr("sys.argv", arguments)
    script.main()
    first = out.read_text()
    assert [c["nulls"] for c in json.loads(first)["cells"]] == [40, 40]
    assert len(capsys.readouterr().out.splitlines()) == 2
    script.main()
    assert out.read_text() == first
    assert capsys.readouterr().out == ""
