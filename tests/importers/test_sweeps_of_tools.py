"""Which sweep is read out of files of other tools, and how far its verdict reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.importers.tool_files import SAMPLES, lines, reasons, written

from regimescope import api
from regimescope.errors import InputError, UserError
from regimescope.reasons import Reason
from regimescope.records import Run
from regimescope.results import Grade, Verdict

# The published series of arXiv 2605.08913, section 4: budget and seconds.
SLOW = {budget: 8.7 + 0.001 * budget for budget in (480, 496, 640, 656)} | {
    budget: 90.0 + 0.01 * budget for budget in range(512, 640, 16)
}


def llama_row(budget: int, seconds: list[float], **more: Any) -> dict[str, Any]:
    return {
        "model_type": "demo",
        "backends": "Metal",
        "n_prompt": 0,
        "n_gen": budget,
        "n_depth": 0,
        "avg_ns": 1e9 * sum(seconds) / len(seconds),
        "samples_ns": [1e9 * value for value in seconds],
    } | more


def llama_sweep(repeats: int = 3) -> list[dict[str, Any]]:
    return [
        llama_row(budget, [seconds * (1 + 0.01 * k) for k in range(repeats)])
        for budget, seconds in sorted(SLOW.items())
    ]


def left_out(run: Run) -> str:
    return "\n".join(event.message for event in run.events)


def test_a_slow_interval_in_one_llama_bench_file_is_a_candidate_of_grade_c(
    tmp_path: Path,
) -> None:
    read = api.analyze(lines(tmp_path, llama_sweep()))
    assert (read.verdict, read.grade) == (Verdict.SPIKE, Grade.C)
    (regime,) = read.regimes
    assert (regime.onset, regime.recovery) == ((496, 512), (624, 640))
    assert {Reason.MISSING_PROCESS_RUN, Reason.CAPACITY_COVARIES} <= set(read.reasons)


def test_the_same_in_csv_and_markdown_gives_the_same_interval(tmp_path: Path) -> None:
    rows = llama_sweep(1)
    table = tmp_path / "a.csv"
    names = ["avg_ns", "n_gen", "n_prompt", "model_type"]  # in another order, without depth
    content = [",".join(names), *(",".join(f'"{row[n]}"' for n in names) for row in rows)]
    table.write_text("\ufeff" + "\r\n".join(content) + "\r\n", encoding="utf-8")
    page = tmp_path / "a.md"
    cells = [
        f"| demo | CPU | tg{row['n_gen']} | {row['n_gen'] * 1e9 / row['avg_ns']:.6f} ± 0.00 |"
        for row in rows
    ]
    page.write_text("\n".join(["| model | backend | test | t/s |", "| - | - | - | - |", *cells]))
    for path in (table, page):
        read = api.analyze(path)
        assert (read.verdict, read.grade) == (Verdict.SPIKE, Grade.C)
        assert read.regimes[0].onset == (496, 512)
        assert Reason.SUMMARY_STATISTICS_ONLY in read.reasons


def test_other_sweeps_of_a_file_are_left_out_by_name_and_can_be_chosen(tmp_path: Path) -> None:
    prefill = [
        llama_row(0, [0.1 * n], n_prompt=128 * n, n_gen=0, avg_ns=1e8 * n) for n in range(1, 8)
    ]
    deep = [llama_row(budget, [9.0], n_depth=4096) for budget in (480, 496)]
    path = lines(tmp_path, [*llama_sweep(), *prefill, *deep])
    run = api.load(path)
    assert run.header.axis == "budget"
    assert len(run.trials) == 36
    assert "2 measurements of another sweep left out: depth 4096" in left_out(run)
    assert "7 measurements of another sweep left out: prefill instead of decode" in left_out(run)
    other = api.load(path, axis="prompt")
    assert (other.header.axis, len(other.trials)) == ("prompt", 7)
    with pytest.raises(UserError, match="--axis 'width'"):
        api.load(path, axis="width")


def test_settings_that_differ_are_never_pooled(tmp_path: Path) -> None:
    rows = llama_sweep()
    fast = [row | {"flash_attn": 1} for row in rows[:5]]
    run = api.load(lines(tmp_path, [*rows, *fast]))
    assert len(run.trials) == 36
    assert "15 measurements of another sweep left out: flash_attn 1" in left_out(run)


def test_a_slow_first_repetition_is_flagged(tmp_path: Path) -> None:
    rows = [llama_row(n, [2.0, 1.0, 1.0]) for n in (16, 32, 48)]
    flagged = [
        Reason.WARM_UP_SUSPECTED in reasons(t) for t in api.load(lines(tmp_path, rows)).trials
    ]
    assert flagged == [True, False, False] * 3


def test_one_pass_upwards_mixes_time_with_the_axis(tmp_path: Path) -> None:
    rows = [row | {"test_time": f"2026-05-01T10:{k:02}:00Z"} for k, row in enumerate(llama_sweep())]
    up = api.load(lines(tmp_path, rows))
    assert all(Reason.FIXED_ORDER in reasons(t) for t in up.trials)
    assert [t.order_index for t in up.trials] == list(range(36))
    mixed = api.load(lines(tmp_path, rows[6:] + rows[:6], "b.jsonl"))
    assert not any(Reason.FIXED_ORDER in reasons(t) for t in mixed.trials)


@pytest.mark.parametrize("bad", [0, -5, None, "x", float("nan")])
def test_impossible_times_are_rejected_by_place_and_the_rest_is_read(
    tmp_path: Path, bad: Any
) -> None:
    rows = llama_sweep()
    rows[2]["samples_ns"] = [bad]
    run = api.load(lines(tmp_path, rows))
    assert len(run.trials) == 33
    assert "a.jsonl: 1 record rejected: [2]: no lengths or no positive time" in left_out(run)


def test_a_file_of_which_most_is_rejected_is_refused(tmp_path: Path) -> None:
    rows = [row | {"samples_ns": [0]} for row in llama_sweep()]
    with pytest.raises(InputError, match=r"a\.jsonl: \[0\]"):
        api.load(lines(tmp_path, rows))


def test_a_cut_last_line_is_rejected_alone(tmp_path: Path) -> None:
    path = lines(tmp_path, llama_sweep())
    path.write_text(path.read_text()[:-40])
    run = api.load(path)
    assert len(run.trials) == 33
    assert "the last line is cut off" in left_out(run)


@pytest.mark.parametrize("content", ["", "[]", "{}", "n_prompt,n_gen,avg_ns\n", "[" * 5000])
def test_a_file_without_results_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(UserError):
        api.load(path)


def test_two_points_are_no_sweep(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 at most, on budget"):
        api.load(lines(tmp_path, llama_sweep()[:2]))


def test_files_of_different_tools_are_not_one_sweep(tmp_path: Path) -> None:
    path = lines(tmp_path, llama_sweep())
    with pytest.raises(UserError, match="several tools"):
        api.load(path, SAMPLES / "guidellm.json")
    table = tmp_path / "t.csv"
    table.write_text("budget,s\n1,2\n")
    with pytest.raises(UserError, match="no known tool"):
        api.load(path, table)


def test_lengths_are_for_files_of_known_tools(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("budget,s\n1,2\n2,3\n")
    with pytest.raises(UserError, match="no known tool"):
        api.load(table, x="budget", y="s", lengths={"budget": 5})


def test_files_that_are_processes_replicate_each_other(tmp_path: Path) -> None:
    paths = [
        optimum(tmp_path, budget, seconds * (1 + 0.01 * copy), copy)
        for budget, seconds in sorted(SLOW.items())
        for copy in range(2)
    ]
    run = api.load(*paths)
    assert run.header.source == "optimum-benchmark"
    assert len({trial.process_run for trial in run.trials}) == len(paths)
    read = api.analyze(run)
    assert (read.verdict, read.grade) == (Verdict.SPIKE, Grade.C)
    assert read.regimes[0].onset == (496, 512)


def optimum(folder: Path, budget: int, seconds: float, copy: int) -> Path:
    table = json.loads((SAMPLES / "optimum-benchmark.json").read_text())
    kwargs = {"max_new_tokens": budget, "min_new_tokens": budget}
    table["config"]["scenario"]["generate_kwargs"] = kwargs
    table["report"] = {"decode": {"latency": {"values": [seconds, seconds * 1.001]}}}
    return written(folder, f"{budget}-{copy}.json", table)


def test_names_of_files_tell_lengths_by_a_pattern(tmp_path: Path) -> None:
    paths = [
        written(
            tmp_path,
            f"in65-out{budget}.json",
            {"avg_latency": 1.0, "latencies": [seconds, seconds * 1.01], "percentiles": {}},
        )
        for budget, seconds in SLOW.items()
    ]
    pattern = r"in(?P<prompt_tokens>\d+)-out(?P<budget>\d+)"
    run = api.load(*paths, pattern=pattern)
    assert {t.cell.budget for t in run.trials} == set(SLOW)
    assert {t.cell.prompt_tokens for t in run.trials} == {65}
    assert api.analyze(run).regimes[0].recovery == (624, 640)
    for wrong in ("(", "out", r"(?P<tokens>\d+)"):
        with pytest.raises(UserError, match="--pattern"):
            api.load(*paths, pattern=wrong)


def test_prompts_of_a_server_are_judged_by_time_to_first_token(tmp_path: Path) -> None:
    table = json.loads((SAMPLES / "vllm-serve.json").read_text())
    prompts = list(range(64, 1024, 64))
    table |= {
        "input_lens": prompts,
        "output_lens": [2] * len(prompts),
        "ttfts": [n * 1e-3 * (10 if 400 < n < 600 else 1) for n in prompts],
        "itls": [[0.01]] * len(prompts),
        "errors": [""] * len(prompts),
        "start_times": list(range(len(prompts))),
    }
    read = api.analyze(written(tmp_path, "a.json", table))
    assert read.axis == "prompt"
    assert (read.verdict, read.grade) == (Verdict.SPIKE, Grade.C)
    assert read.regimes[0].onset == (384, 448)
