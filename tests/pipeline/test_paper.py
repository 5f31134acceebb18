"""The paper's claims from the command line."""

import json


def test_the_word_paper_judges_the_published_figures(run):
    out = run("analyze", "paper").stdout
    assert out.startswith("The claims of arXiv 2605.08913")
    assert out.count("supported: ") == 10
    claims = json.loads(run("analyze", "paper", "--json").stdout)["claims"]
    assert {claim["supported"] for claim in claims} == {"yes", "in part", "no"}


def test_a_file_of_that_name_is_read_instead(run, tmp_path):
    (tmp_path / "paper").write_text("budget,latency_s\n64,1\n128,2\n", encoding="utf-8")
    assert "columns" in run("analyze", "paper", expect=2).told
