from msgspec.structs import replace
from tests.unit.report.builders import make_conclusion, make_run, probe_run

from regimescope.report.compilation import compilation_sentences
from regimescope.report.page import page_content


def with_counts(totals, process=1, warm=1):
    """Trials of one process whose totals are given, the first ones warm-ups."""
    names = ("compiles_count", "graph_breaks_count", "compile_fallbacks_count")
    return [
        replace(
            probe_run().trials[0],
            trial_id=f"t{process}-{i}",
            process_run=process,
            warmup=i < warm,
            counters=dict(zip(names, map(float, counts), strict=True)),
        )
        for i, counts in enumerate(totals)
    ]


def test_a_run_without_a_compiler_says_nothing():
    assert compilation_sentences(probe_run()) == []


def test_what_was_compiled_before_measuring_is_told_once():
    run = make_run(with_counts([(2, 0, 0), (2, 0, 0)]) + with_counts([(2, 0, 0), (2, 0, 0)], 2))
    assert compilation_sentences(run) == ["steps run compiled: 2 compilations in a process"]


def test_a_fallback_is_told_on_the_page_too():
    run = make_run(with_counts([(2, 1, 1), (2, 1, 1)]) + with_counts([(2, 1, 0)], 2))
    sentences = compilation_sentences(run)
    assert sentences == [
        "steps run compiled: 2 compilations in a process, 1 place left to Python",
        "the compiler gave up on 1 function in 1 of 2 processes: there steps ran uncompiled",
    ]
    shown = page_content(run, make_conclusion())["disturbances"]
    assert set(sentences) <= set(shown)


def test_trials_that_hold_a_compilation_are_counted_in_each_process_apart():
    first = with_counts([(1, 0, 0), (2, 0, 0), (2, 0, 0), (3, 0, 0)])
    second = with_counts([(1, 0, 0), (1, 0, 0)], 2)
    assert compilation_sentences(make_run(first + second))[-1] == (
        "2 measured trials hold the time of a compilation"
    )
