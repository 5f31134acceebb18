import base64
import hashlib
import itertools
import json
import re
import stat
import sys
from html.parser import HTMLParser

import pytest
from tests.unit.report.builders import (
    make_conclusion,
    make_regime,
    make_run,
    make_trial,
    probe_run,
)

from regimescope.errors import MissingDependencyError
from regimescope.reasons import Reason
from regimescope.records import Event
from regimescope.report import html
from regimescope.results import Counts, Grade, Phases, Verdict

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "]]>",
    "<!-- open",
    '" onmouseover="alert(1)',
    "{{ 7 * 7 }}{% raw %}",
    "[red]x[/red]",
    "\x1b[31mansi\x1b[0m",
    "line\u2028separator",
    "https://example.org/x.js",
]


class Page(HTMLParser):
    """Elements, attributes, text and scripts of a page."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.elements, self.attributes, self.texts, self.scripts = [], [], [], []
        self._open = ""
        self.feed(source)
        self.close()
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.texts.append(data)

    def values(self, tag, name):
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def traced_probe(**header):
    trial = make_trial(5, 1.0, trial_id="traced", itl_s=[0.2] * 4)
    run = probe_run(**header)
    return make_run((*run.trials, trial), **header)


def test_the_page_says_the_verdict_first_and_then_its_grounds():
    page = Page(html.render_page(traced_probe(), make_conclusion()))
    order = [
        "SPIKE candidate (grade C): budgets 512 to 624 take 11.1x",
        "Without any curve: budget 560",
        "Grade C: not confirmed",
        "Intervals",
        "Points",
        "Gaps between tokens",
        "Prefill and decode",
        "Limits of this verdict",
        "One trial for each budget, so the noise is unknown. no_replication",
        "Trials",
        "12 trials measured, 0 failed, 0 left out",
        "How the verdict is made",
        "What was measured",
        "How to repeat it",
        "regimescope scan gpt2-medium",
    ]
    places = [page.text.find(text) for text in order]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_strings_from_outside_stay_text(hostile):
    trial = make_trial(512, None, trial_id=hostile, message=hostile)
    run = make_run(
        (*probe_run().trials, trial),
        [Event(kind="skip", at_utc=hostile, message=hostile)],
        model_name=hostile,
        run=hostile,
        host={hostile: hostile, "nested": {hostile: [hostile]}},
        versions={hostile: hostile},
        command=["regimescope", "scan", hostile],
        created_utc=hostile,
    )
    source = html.render_page(run, make_conclusion(run=hostile, axis=hostile))
    page = Page(source)
    assert {"img", "b", "red"}.isdisjoint(page.elements)
    assert page.elements.count("script") == 3
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    shown = " ".join(hostile.replace("\x1b", "").split())
    assert page.text.count(shown) >= 10
    assert not set("\x1b\u2028") & set(source)
    json.loads(page.scripts[0])


def test_nothing_is_fetched_from_anywhere():
    page = Page(html.render_page(traced_probe(), make_conclusion()))
    loading = {"src", "href", "srcset", "action", "formaction", "data", "poster", "background"}
    assert not [entry for entry in page.attributes if entry[1] in loading]
    assert {"link", "iframe", "object", "embed", "base"}.isdisjoint(page.elements)
    style = html.render_page(probe_run(), make_conclusion()).split("<style>")[1].split("</style>")
    assert "@import" not in style[0]
    assert "url(" not in style[0]


def test_the_policy_allows_exactly_the_scripts_that_are_there():
    page = Page(html.render_page(traced_probe(), make_conclusion()))
    (policy,) = [value for value in page.values("meta", "content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    written = {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in page.scripts[1:]
    }
    assert allowed == written
    assert len(written) == 2


def test_charts_travel_as_data_for_both_themes():
    data = json.loads(Page(html.render_page(traced_probe(), make_conclusion())).scripts[0])
    names = [chart["name"] for chart in data["charts"]]
    assert names == ["latency", "gaps-median", "gaps-longest", "phases"]
    assert set(data["themes"]) == {"light", "dark"}
    assert all(chart["definition"]["description"] for chart in data["charts"])


def test_every_chart_has_a_place_with_a_label():
    page = Page(html.render_page(traced_probe(), make_conclusion()))
    data = json.loads(page.scripts[0])
    assert {chart["name"] for chart in data["charts"]} <= set(page.values("div", "id"))
    assert "decode time by budget" in page.values("div", "aria-label")


def test_the_page_is_small():
    assert len(html.render_page(traced_probe(), make_conclusion()).encode()) < 3_000_000


def test_headings_descend_one_level_at_a_time_and_tables_name_their_heads():
    page = Page(html.render_page(traced_probe(), make_conclusion()))
    levels = [int(tag[1]) for tag in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert page.values("html", "lang") == ["en"]
    assert len(page.values("th", "scope")) == page.elements.count("th")


def test_a_run_in_which_everything_failed_gives_a_correct_page_without_charts():
    run = make_run((make_trial(64, None, message="out of memory"),))
    conclusion = make_conclusion(
        Verdict.INCONCLUSIVE,
        regimes=(),
        reasons=(Reason.BACKEND_FAILURES,),
        baseline=None,
        certificate=None,
        phases=None,
        counts=Counts(trials=1, failed=1, dropped=0),
    )
    page = Page(html.render_page(run, conclusion))
    assert "INCONCLUSIVE (grade C): no verdict is possible (more than a third" in page.text
    assert "No trial gave a latency, so there is no curve to draw." in page.text
    assert "Not drawn: no per-token times" in page.text
    assert "Not drawn: prefill and decode are not separated." in page.text
    assert "out of memory" in page.text
    assert json.loads(page.scripts[0])["charts"] == []


def test_a_chart_that_is_not_drawn_says_why():
    one = Phases(prefill_share=0.1, by_value=((64, 0.1),))
    text = Page(html.render_page(probe_run(), make_conclusion(phases=one))).text
    assert "Prefill takes 10.0 % of the time." in text
    assert "Not drawn: they are known of one value only." in text


def test_an_empty_import_gives_a_page():
    run = make_run(spec=None, model=None, host=None, command=None, versions={}, source="generic")
    conclusion = make_conclusion(
        Verdict.CLEAN, regimes=(), reasons=(), baseline=None, certificate=None, phases=None
    )
    text = Page(html.render_page(run, conclusion)).text
    assert "CLEAN (grade C): no slow interval was found." in text
    assert "They come from: generic." in text
    assert "Intervals None." in text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_page(verdict):
    open_ended = make_regime(verdict, recovery=None, slowdown=None, peak=None, lost_s=None)
    conclusion = make_conclusion(verdict, grade=Grade.B, regimes=(open_ended,))
    text = Page(html.render_page(probe_run(), conclusion)).text
    assert f"{verdict.value}" in text
    assert "not seen" in text


def test_long_lists_say_how_much_is_left_out():
    trials = tuple(make_trial(64, None, trial_id=str(k)) for k in range(30))
    events = [Event(kind="skip", at_utc="t", message=str(k)) for k in range(70)]
    text = Page(html.render_page(make_run(trials, events), make_conclusion())).text
    assert "The first 20 of 30 are shown." in text
    assert "The last 50 of 70 are shown." in text


def test_a_command_is_quoted_for_a_shell():
    run = probe_run(command=["regimescope", "scan", "my model; rm -rf x"])
    text = Page(html.render_page(run, make_conclusion())).text
    assert "regimescope scan 'my model; rm -rf x'" in text


def test_writing_replaces_the_old_page_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    html.write_report(probe_run(), make_conclusion(), path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert path.read_text(encoding="utf-8") == html.render_page(probe_run(), make_conclusion())
    assert list(tmp_path.iterdir()) == [path]


def test_the_page_is_as_readable_as_other_new_files(tmp_path):
    other = tmp_path / "other"
    other.write_text("x", encoding="utf-8")
    html.write_report(probe_run(), make_conclusion(), tmp_path / "report.html")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_page_that_cannot_be_put_in_place_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "report.html"
    path.mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        html.write_report(probe_run(), make_conclusion(), path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("library", ["jinja2", "vl_convert", "altair"])
def test_a_missing_library_names_the_install_line_and_writes_nothing(
    library, monkeypatch, tmp_path
):
    html._vega_bundle.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'regimescope\[report\]'"):
        html.write_report(probe_run(), make_conclusion(), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
