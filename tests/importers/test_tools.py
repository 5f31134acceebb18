"""Files of other tools: what each becomes, and what is never read out of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.importers.tool_files import SAMPLES, lines, reasons, written

from regimescope.errors import UserError
from regimescope.importers.content import read_content
from regimescope.importers.foreign import Found, Hints
from regimescope.importers.recognized import FORMATS, recognize
from regimescope.reasons import Reason


def found(path: Path, **lengths: int) -> Found:
    content = read_content(path)
    form = recognize(content)
    assert form is not None
    return form.read(content, Hints(lengths))


def test_every_format_has_a_sample_that_only_it_recognizes() -> None:
    seen = set()
    for path in sorted(SAMPLES.iterdir()):
        form = recognize(read_content(path))
        assert form is not None, path.name
        seen.add(form.name)
    assert seen == {form.name for form in FORMATS}


@pytest.mark.parametrize(
    ("name", "decode_s", "summary"),
    [
        ("llama-bench.jsonl", [0.99, 1.01], False),
        ("llama-bench.csv", [1.0], True),
        ("llama-bench.sql", [1.0], True),
        ("llama-bench.md", [128 / 101.25], True),
    ],
)
def test_llama_bench_gives_seconds_of_decoding(
    name: str, decode_s: list[float], summary: bool
) -> None:
    trials = [t for t in found(SAMPLES / name).trials if t.phase == "decode"]
    assert [t.decode_s for t in trials] == pytest.approx(decode_s, rel=1e-9)
    for trial in trials:
        assert trial.cell.budget == trial.output_tokens == trial.decode_steps == 128
        assert trial.cell.capacity is None
        assert Reason.CAPACITY_COVARIES in reasons(trial)
        assert (Reason.SUMMARY_STATISTICS_ONLY in reasons(trial)) == summary


def test_llama_bench_prefill_is_behind_its_depth() -> None:
    (trial,) = [t for t in found(SAMPLES / "llama-bench.jsonl").trials if t.phase == "prefill"]
    assert (trial.cell.prompt_tokens, trial.cell.depth, trial.ttft_s) == (512, 4096, 0.4)
    assert trial.start_utc == "2026-05-01T10:00:09Z"


def test_optimum_benchmark_pairs_prefill_decode_and_gaps() -> None:
    first, second = found(SAMPLES / "optimum-benchmark.json").trials
    assert (first.ttft_s, first.decode_s, first.itl_s) == (0.02, 0.03, [0.01, 0.01, 0.01])
    assert (second.ttft_s, second.decode_s) == (0.021, 0.031)
    assert (second.cell.budget, second.cell.prompt_tokens, second.cell.batch) == (4, 16, 1)
    assert (second.output_tokens, second.decode_steps) == (4, 3)


def test_optimum_benchmark_on_a_device_that_was_not_waited_for_keeps_totals(
    tmp_path: Path,
) -> None:
    table = json.loads((SAMPLES / "optimum-benchmark.json").read_text())
    table["config"]["backend"]["device"] = "mps"
    table["report"]["generate"] = {"latency": {"values": [0.05, 0.052]}}
    path = written(tmp_path, "a.json", table)
    read = found(path)
    assert [(t.e2e_s, t.decode_s, t.ttft_s) for t in read.trials] == [
        (0.05, None, None),
        (0.052, None, None),
    ]
    assert all(Reason.PHASE_UNSYNCHRONIZED in reasons(t) for t in read.trials)
    assert sum(read.dropped.values()) == 1


def test_gaps_that_do_not_add_up_are_counted_and_not_read(tmp_path: Path) -> None:
    table = json.loads((SAMPLES / "optimum-benchmark.json").read_text())
    table["report"]["per_token"]["latency"]["values"].pop()
    read = found(written(tmp_path, "a.json", table))
    assert [t.itl_s for t in read.trials] == [None, None]
    assert sum(read.dropped.values()) == 5


def test_vllm_latency_needs_to_be_told_its_lengths() -> None:
    path = SAMPLES / "vllm-latency.json"
    with pytest.raises(UserError, match="how many tokens"):
        found(path)
    trials = found(path, budget=128, prompt_tokens=32).trials
    assert [t.e2e_s for t in trials] == [1.5, 1.53, 1.53]
    assert {t.phase for t in trials} == {"mixed"}
    assert all(t.output_tokens is None for t in trials)


def test_a_streamed_message_is_no_token() -> None:
    whole, chunked = found(SAMPLES / "vllm-serve.json").trials
    assert whole.itl_s == [0.01, 0.01, 0.0105]
    assert chunked.itl_s is None
    assert Reason.CHUNKED_STREAM in reasons(chunked)
    assert (chunked.decode_s, chunked.decode_steps, chunked.ttft_s) == (0.02, 2, 0.04)
    for trial in (whole, chunked):
        assert trial.cell.budget is None  # what was asked for is not in the file
        assert {Reason.CLIENT_SIDE_TIMES, Reason.CACHED_PROMPT_UNKNOWN} <= reasons(trial)


def test_a_request_that_failed_is_a_failed_trial(tmp_path: Path) -> None:
    table = json.loads((SAMPLES / "vllm-serve.json").read_text())
    table["errors"] = ["", "connection reset"]
    table["output_lens"] = [0, 3]
    trials = found(written(tmp_path, "a.json", table)).trials
    assert [(t.status, t.message) for t in trials] == [
        ("failed", "no token came"),
        ("failed", "connection reset"),
    ]


def test_gaps_of_concurrent_requests_have_no_positions(tmp_path: Path) -> None:
    table = json.loads((SAMPLES / "vllm-serve.json").read_text())
    table["max_concurrency"] = 8
    assert [t.itl_s for t in found(written(tmp_path, "a.json", table)).trials] == [None, None]


def test_means_of_a_server_stay_one_measurement(tmp_path: Path) -> None:
    table = json.loads((SAMPLES / "vllm-serve.json").read_text())
    lean = {k: v for k, v in table.items() if not isinstance(v, list)}
    (trial,) = found(written(tmp_path, "a.json", lean)).trials
    assert trial.decode_s == pytest.approx(0.0101)
    assert (trial.cell.prompt_tokens, trial.cell.batch, trial.itl_s) == (10, 1, None)
    assert Reason.SUMMARY_STATISTICS_ONLY in reasons(trial)


def test_guidellm_has_two_real_times_and_no_gaps(tmp_path: Path) -> None:
    (trial,) = found(SAMPLES / "guidellm.json").trials
    assert trial.ttft_s == pytest.approx(0.09)
    assert trial.decode_s == pytest.approx(1.295)
    assert (trial.decode_steps, trial.itl_s, trial.cell.batch) == (127, None, 1)
    assert Reason.INTERPOLATED_TIMES in reasons(trial)
    table = json.loads((SAMPLES / "guidellm.json").read_text())
    requests = table["benchmarks"][0]["requests"]
    requests["errored"] = [{"prompt_tokens": 64}]
    requests["successful"].append(requests["successful"][0] | {"cached_tokens": 32})
    read = found(written(tmp_path, "a.json", table))
    assert [t.status for t in read.trials] == ["ok", "failed"]
    assert sum(read.dropped.values()) == 1


def test_aiperf_reads_the_unit_and_the_phase(tmp_path: Path) -> None:
    (trial,) = found(SAMPLES / "aiperf.jsonl").trials
    assert trial.itl_s == pytest.approx([0.010, 0.0095, 0.0105])
    assert (trial.ttft_s, trial.e2e_s) == pytest.approx((0.02, 0.05))
    assert trial.decode_s == pytest.approx(0.03)
    record = json.loads((SAMPLES / "aiperf.jsonl").read_text())
    warm_up = record | {"metadata": record["metadata"] | {"benchmark_phase": "warmup"}}
    broken = record | {"error": {"message": "timeout"}}
    read = found(lines(tmp_path, [record, warm_up, broken]))
    assert len(read.trials) == 1
    assert dict(read.dropped) == {"phase warmup": 1, "ended in an error": 1}
    strange = json.loads(json.dumps(record).replace('"ms"', '"fortnight"'))
    with pytest.raises(UserError, match="fortnight"):
        found(lines(tmp_path, [strange]))


def test_mlx_benchmark_turns_rates_into_times() -> None:
    first, second = found(SAMPLES / "mlx-benchmark.txt").trials
    assert first.ttft_s == pytest.approx(512 / 1800)
    assert (first.decode_s, second.decode_s) == pytest.approx((1.28, 128 / 99.5))
    assert (first.decode_steps, first.output_tokens) == (127, 128)
    assert (first.cell.budget, first.cell.prompt_tokens, first.cell.batch) == (128, 512, 1)
