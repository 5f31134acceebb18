"""Files of llama.cpp's other benchmarks, of servers and of the paper's harness."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.importers.test_tools import found
from tests.importers.tool_files import SAMPLES, lines, reasons, written

from regimescope import analyze
from regimescope.api import load
from regimescope.errors import InputError
from regimescope.importers.content import read_content
from regimescope.importers.recognized import recognize
from regimescope.reasons import Reason
from regimescope.results import Grade, Verdict


@pytest.mark.parametrize(
    ("name", "batches", "decode_s"),
    [
        ("llama-batched-bench.jsonl", [1, 2], [2.56, 2.8]),
        ("llama-batched-bench.md", [1, 4], [2.56, 3.2]),
    ],
)
def test_a_batched_step_serves_all_sequences(
    name: str, batches: list[int], decode_s: list[float]
) -> None:
    trials = found(SAMPLES / name).trials
    assert [t.cell.batch for t in trials] == batches
    assert [t.decode_s for t in trials] == decode_s
    # The rate is a sum over the batch and may dip; the time of a step does not.
    assert {t.decode_steps for t in trials} == {128}
    assert {t.cell.prompt_tokens for t in trials} == {512}


def test_the_capacity_of_a_batched_bench_is_that_of_its_file() -> None:
    trials = found(SAMPLES / "llama-batched-bench.jsonl").trials
    assert [t.cell.capacity for t in trials] == [8192, 8192]


def test_a_first_window_that_warms_up_stays_out_of_the_curve(tmp_path: Path) -> None:
    first, second = found(SAMPLES / "llama-sweep-bench.jsonl").trials
    assert (first.cell.depth, second.cell.depth) == (0, 512)
    assert (first.warmup, second.warmup) == (True, False)
    assert Reason.WARM_UP_SUSPECTED in reasons(first)
    assert (second.decode_s, second.ttft_s) == (2.21, 0.53)
    assert second.memory_bytes == {"rss_peak": 101 * 1024 * 1024}
    rows = [
        json.loads(line) for line in (SAMPLES / "llama-sweep-bench.jsonl").read_text().splitlines()
    ]
    rows[0]["t_tg"] = 2.0
    assert not any(t.warmup for t in found(lines(tmp_path, rows)).trials)


def test_ds4_decodes_behind_a_depth_and_knows_no_empty_cache(tmp_path: Path) -> None:
    first, second = found(SAMPLES / "ds4-bench.csv").trials
    assert [(t.cell.depth, t.decode_s) for t in (first, second)] == [(2048, 4.0), (4096, 5.0)]
    assert first.memory_bytes == {"kv_cache": 50_000_000}
    assert second.memory_bytes is None
    path = tmp_path / "steady.csv"
    path.write_text(
        "\ufeffctx_tokens,prefill_tps,gen_tokens,gen_tps,gen_steady_tokens,gen_steady_tps\r\n"
        "2048,300,128,30,127,25.4\r\n"
    )
    (steady,) = found(path).trials
    assert (steady.decode_s, steady.decode_steps) == (5.0, 127)


def test_one_file_of_ds4_mixes_time_with_depth(tmp_path: Path) -> None:
    rows = "".join(f"{d},{d},300,128,{64 - d / 1024},0\n" for d in range(1024, 9217, 1024))
    path = tmp_path / "a.csv"
    path.write_text(
        f"ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes\n{rows}"
    )
    conclusion = analyze(path)
    assert conclusion.grade is Grade.C
    assert {Reason.TIME_AND_AXIS_CONFOUNDED, Reason.NO_REPLICATION} <= set(conclusion.reasons)


def test_an_answer_of_ollama_knows_no_budget_of_its_own() -> None:
    whole, early = found(SAMPLES / "ollama-answer.jsonl").trials
    assert (whole.decode_s, whole.ttft_s, whole.output_tokens) == (1.28, 0.13, 128)
    assert whole.cell.prompt_tokens == 26
    assert reasons(whole) == {Reason.TOKENS_NOT_VERIFIED}
    assert {Reason.TOKENS_NOT_VERIFIED, Reason.CACHED_PROMPT_UNKNOWN} <= reasons(early)
    assert [t.env for t in (whole, early)] == [{"fresh_load": False}, {"fresh_load": True}]
    told = found(SAMPLES / "ollama-answer.jsonl", budget=128)
    assert [t.cell.budget for t in told.trials] == [128, 128]
    assert reasons(told.trials[0]) == set()
    assert sum(told.dropped.values()) == 1


def test_an_answer_that_ended_early_is_left_out_where_the_budget_is_told(tmp_path: Path) -> None:
    answer = json.loads((SAMPLES / "ollama-answer.jsonl").read_text().splitlines()[0])
    rows = [
        answer | {"eval_count": n, "prompt_eval_count": p} for p in (8, 16, 32) for n in (128, 90)
    ]
    run = load(lines(tmp_path, rows), axis="prompt", lengths={"budget": 128})
    conclusion = analyze(run)
    assert Reason.TOKEN_COUNT_MISMATCH in conclusion.reasons
    assert conclusion.counts.dropped == 3


def test_the_table_of_ollama_pairs_prefill_with_generation() -> None:
    read = found(SAMPLES / "ollama-bench.csv")
    (trial,) = read.trials
    assert (trial.decode_s, trial.ttft_s, trial.decode_steps) == pytest.approx((1.28, 0.13, 128))
    assert dict(read.dropped) == {"step load": 1}


def test_running_timings_of_a_server_are_gaps() -> None:
    (trial,) = found(SAMPLES / "llama-server.jsonl").trials
    assert trial.itl_s == pytest.approx([0.0104, 0.01])
    assert (trial.decode_s, trial.ttft_s, trial.output_tokens) == (0.0304, 0.062, 3)
    assert (trial.cell.prompt_tokens, trial.cell.depth) == (31, 0)


def test_an_event_stream_is_read_request_by_request() -> None:
    first, second = found(SAMPLES / "llama-server.txt").trials
    assert [(t.decode_s, t.itl_s) for t in (first, second)] == [(0.02, None), (0.04, None)]
    assert reasons(first) == {Reason.CACHED_PROMPT_UNKNOWN}
    assert reasons(second) == {Reason.SPECULATIVE_DECODING}
    assert second.cell.depth == 8


def test_timings_that_skip_a_token_are_chunks(tmp_path: Path) -> None:
    rows = [{"timings": {"cache_n": 0, "predicted_n": n, "predicted_ms": 10.0 * n}} for n in (1, 3)]
    (trial,) = found(lines(tmp_path, rows)).trials
    assert trial.itl_s is None
    assert reasons(trial) == {Reason.CHUNKED_STREAM}


def test_a_count_that_starts_again_is_another_request(tmp_path: Path) -> None:
    rows = [
        {"timings": {"cache_n": 0, "predicted_n": n, "predicted_ms": 10.0 * n}}
        for n in (1, 2, 1, 2, 3)
    ]
    assert [t.output_tokens for t in found(lines(tmp_path, rows)).trials] == [2, 3]


def test_benchy_gives_the_time_of_a_step_and_verifies_no_budget(tmp_path: Path) -> None:
    read = found(SAMPLES / "llama-benchy.json")
    assert [t.decode_s for t in read.trials] == pytest.approx([1 / 40, 1 / 60])
    assert {(t.decode_steps, t.output_tokens) for t in read.trials} == {(1, None)}
    assert read.trials[0].cell.depth == 4096
    assert reasons(read.trials[0]) == {Reason.TOKENS_NOT_VERIFIED, Reason.CLIENT_SIDE_TIMES}
    assert sum(read.dropped.values()) == 2
    table = json.loads((SAMPLES / "llama-benchy.json").read_text())
    table["prefix_caching_enabled"] = True
    table["benchmarks"][0]["tg_throughput"] = {"mean": 50.0, "values": []}
    (mean,) = found(written(tmp_path, "a.json", table)).trials
    assert mean.decode_s == 0.02
    assert {Reason.SUMMARY_STATISTICS_ONLY, Reason.CACHED_PROMPT_UNKNOWN} <= reasons(mean)


def test_the_harness_of_the_paper_mixes_budget_and_process() -> None:
    split, total = found(SAMPLES / "paper-harness.csv").trials
    assert (split.phase, split.ttft_s, split.decode_s, split.e2e_s) == ("decode", 0.09, 1.22, 1.31)
    assert (total.phase, total.e2e_s, total.decode_s) == ("mixed", 2.64, None)
    assert (split.series.device, split.series.dtype) == ("mps", "fp16")
    assert (split.cell.kv_cache, total.cell.kv_cache) == ("on", "off")
    assert split.memory_bytes == {"live": 2 * 1024 * 1024}
    assert {Reason.BUDGET_EQUALS_PROCESS, Reason.SUMMARY_STATISTICS_ONLY} <= reasons(split)
    assert Reason.BACKEND_FAILURES in reasons(total)


def test_the_harness_of_the_paper_shows_a_candidate_of_grade_c(tmp_path: Path) -> None:
    latency = {480: 9.2, 496: 9.5, 512: 89.2, 528: 83.2, 544: 97.0, 560: 110.1, 576: 110.9,
               592: 100.4, 608: 96.0, 624: 98.0, 640: 8.8, 656: 8.9}  # fmt: skip
    rows = "".join(f"gpt2-medium,mps,long,{b},1,True,5,100,{s},1.0\n" for b, s in latency.items())
    path = tmp_path / "results.csv"
    path.write_text(
        "model,execution_mode,prompt_name,max_tokens,offered_load,use_cache,samples,"
        f"success_rate,avg_latency,std_latency\n{rows}"
    )
    conclusion = analyze(path)
    assert (conclusion.verdict, conclusion.grade) == (Verdict.SPIKE, Grade.C)
    assert (conclusion.regimes[0].onset, conclusion.regimes[0].recovery) == ((496, 512), (624, 640))
    assert Reason.BUDGET_EQUALS_PROCESS in conclusion.reasons
    assert conclusion.regimes[0].follows is None


# --- what every one of them must bear -------------------------------------------------------------

NEW = (
    "llama-batched-bench.jsonl", "llama-sweep-bench.jsonl", "ds4-bench.csv", "ollama-answer.jsonl",
    "ollama-bench.csv", "llama-server.jsonl", "llama-benchy.json", "paper-harness.csv",
)  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(name: str, tmp_path: Path) -> None:
    text = (SAMPLES / name).read_text()
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    plain = found(SAMPLES / name)
    assert [t.decode_s for t in found(path).trials] == [t.decode_s for t in plain.trials]


@pytest.mark.parametrize("name", [n for n in NEW if n.endswith(".jsonl")])
def test_an_interrupted_last_line_costs_that_line_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text((SAMPLES / name).read_text().rstrip()[:-9])
    rows = len((SAMPLES / name).read_text().splitlines())
    assert len(found(path).trials) in range(1, rows + 1)


@pytest.mark.parametrize("name", [n for n in NEW if n.endswith(".csv")])
def test_columns_may_stand_in_any_order_beside_unknown_ones(name: str, tmp_path: Path) -> None:
    rows = [line.split(",") for line in (SAMPLES / name).read_text().splitlines()]
    path = tmp_path / name
    path.write_text("".join(",".join([*reversed(row), "more"]) + "\n" for row in rows))
    before, after = found(SAMPLES / name).trials, found(path).trials
    assert [(t.cell, t.decode_s, t.e2e_s) for t in before] == [
        (t.cell, t.decode_s, t.e2e_s) for t in after
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("llama-batched-bench.jsonl", '"t_tg": '),
        ("llama-sweep-bench.jsonl", '"t_tg": '),
        ("llama-server.jsonl", '"predicted_ms": '),
    ],
)
@pytest.mark.parametrize("bad", ["0", "-1", "NaN", "Infinity", '"fast"', "null", "1e999"])
def test_impossible_times_are_rejected_by_place(
    name: str, key: str, bad: str, tmp_path: Path
) -> None:
    text = (SAMPLES / name).read_text()
    last = text.rindex(key) + len(key)
    end = min(i for i in (text.find(",", last), text.find("}", last)) if i > 0)
    path = tmp_path / name
    path.write_text(text[:last] + bad + text[end:])
    read = found(path)
    assert len(read.rejected) == 1
    with pytest.raises(InputError):
        analyze(path)


# --- sweeps of servers ----------------------------------------------------------------------------


def test_a_sweep_of_vllm_reads_its_settings_and_its_runs() -> None:
    trials = found(SAMPLES / "vllm-sweep.csv").trials
    assert [(t.cell.budget, t.repeat) for t in trials] == [(128, 0), (128, 1), (256, 0)]
    assert [t.decode_s for t in trials] == pytest.approx([0.010, 0.0102, 0.0101])
    assert {(t.cell.prompt_tokens, t.cell.batch, t.decode_steps) for t in trials} == {(32, 1, 1)}
    assert all(Reason.SUMMARY_STATISTICS_ONLY in reasons(t) for t in trials)


def test_a_sweep_of_vllm_may_come_as_json_with_underscores(tmp_path: Path) -> None:
    rows = [
        {"run_number": k, "random_output_len": n, "request_throughput": 1.0, "completed": 1,
         "total_input_tokens": 8, "mean_tpot_ms": 10.0}
        for n in (64, 128, 256) for k in (0, 1)
    ]  # fmt: skip
    conclusion = analyze(written(tmp_path, "summary.json", rows))
    assert conclusion.axis == "budget"
    assert conclusion.counts.trials == 6


def test_asiai_has_one_context_a_file_and_groups_by_the_prompt(tmp_path: Path) -> None:
    (trial,) = found(SAMPLES / "asiai.json").trials
    assert (trial.decode_s, trial.ttft_s, trial.cell.depth) == (12.8, 0.3, 4096)
    assert trial.series.device == "Apple M4"
    table = json.loads((SAMPLES / "asiai.json").read_text())
    paths = []
    for context in (1024, 2048, 4096):
        table["benchmark"]["context_size"] = context
        run = table["benchmark"]["engines"]["ollama"]["raw_runs"][0]
        table["benchmark"]["engines"]["ollama"]["raw_runs"] = [
            run | {"prompt_type": "code"}, run | {"prompt_type": "tool_call", "tokens_generated": 9}
        ]  # fmt: skip
        paths.append(written(tmp_path, f"{context}.json", table))
    run = load(*paths)
    assert (run.header.axis, len(run.trials)) == ("context", 3)
    assert "prompt_type" in run.events[0].message
    table["schema_version"] = 1
    assert recognize(read_content(written(tmp_path, "other.json", table))) is None
