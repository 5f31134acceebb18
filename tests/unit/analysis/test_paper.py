"""The paper's claims: what its own figures give, and what they bear."""

from pathlib import Path

import pytest

from regimescope.analysis.paper import paper_claims, series, table
from regimescope.analysis.regimes import conclude
from regimescope.reasons import Reason
from regimescope.report.paper import claims_page
from regimescope.results import Grade, Verdict

PAGE = Path(__file__).parents[3] / "docs" / "paper.md"
CLAIMS = {claim.name: claim for claim in paper_claims()}


@pytest.mark.parametrize(
    ("begins", "recomputed", "supported"),
    [
        ("gpt2-medium is 16.6x", "84.5 s at 512 over 5.1 s at 384: 16.6x", "in part"),
        ("gpt2-large is 21.1x", "103.4 s at 384 over 4.9 s at 256: 21.1x", "in part"),
        ("budgets 512 to 624", "onset in (496, 512], recovery in (624, 640]", "in part"),
        ("the decode phase", "prefill 0.1 % of 89.2 s", "yes"),
        ("the speed-up of the KV cache", "4.86x to 20.3x outside, 1.94x at 512", "yes"),
        ("without the cache", "a difference of 22.6 s", "no"),
        ("memory does not explain it", "24 to 25 MB a step", "in part"),
        ("a T4 is smooth", "gpt2-medium 1.03x at 512, gpt2-large 0.99x at 384", "yes"),
        ("onset follows the total length", "onset may follow the total length; recovery may "
         "follow the budget", "in part"),
        ("five runs", "one value a budget", "no"),
    ],
)  # fmt: skip
def test_what_the_figures_give_and_what_they_bear(begins, recomputed, supported):
    (claim,) = [claim for name, claim in CLAIMS.items() if name.startswith(begins)]
    assert recomputed in claim.recomputed
    assert claim.supported == supported
    assert claim.why


def test_the_slowdown_against_the_same_budget_is_smaller_than_the_published_one():
    (claim,) = [claim for name, claim in CLAIMS.items() if name.startswith("gpt2-medium is")]
    assert "11.1x (9.61x to 12.7x)" in claim.why


@pytest.mark.parametrize(
    ("name", "column", "verdict", "reason"),
    [
        ("probe_gpt2_medium", "latency_s", Verdict.SPIKE, Reason.NO_REPLICATION),
        ("kv_ablation_gpt2_medium", "kv_cache_on_s", Verdict.SPIKE, Reason.NO_REPLICATION),
    ],
)
def test_published_series_end_at_grade_c(name, column, verdict, reason):
    rows = table(name)
    run = series([int(r["budget"]) for r in rows], [float(r[column]) for r in rows])
    conclusion = conclude(run)
    assert (conclusion.verdict, conclusion.grade) == (verdict, Grade.C)
    assert reason in conclusion.reasons


def test_the_page_of_the_documentation_is_current():
    assert PAGE.read_text(encoding="utf-8") == claims_page(paper_claims())
