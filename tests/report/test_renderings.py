"""Every rendering of every kind of report: complete, harmless, the same each time."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from optcc.report.render_html import render_html
from optcc.report.render_markdown import render_markdown
from optcc.report.render_terminal import render_terminal
from optcc.report.schema import Latency
from tests.report.sample import (
    accuracy_row,
    bare_report,
    engine_rows,
    good_report,
    random_report,
    unlabelled_report,
)

REPORTS = [good_report, random_report, unlabelled_report, bare_report]
RENDERERS = [render_html, render_markdown, render_terminal]
VOID = {"meta", "br"}


class Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("render", RENDERERS)
def test_says_model_and_verdict_and_is_repeatable(render, make) -> None:
    report = make()
    text = render(report)
    assert report.model.name in text
    assert report.verdict in text
    assert render(make()) == text
    assert not re.search(r"\bNone\b(?! of)|Undefined", text)


@pytest.mark.parametrize("make", REPORTS)
def test_html_is_well_formed_and_needs_no_other_file(make) -> None:
    page = Structure()
    page.feed(render_html(make()))
    assert page.open == []
    assert page.links == []
    assert "script" not in page.tags
    assert "url(" not in render_html(make())


@pytest.mark.parametrize(("make", "charts"), [(good_report, 5), (bare_report, 0)])
def test_html_draws_what_was_measured(make, charts: int) -> None:
    assert render_html(make()).count("<svg") == charts


def test_pictures_come_before_tables() -> None:
    page = render_html(good_report())
    assert page.index("banner") < page.index("<svg") < page.index("<table")


@pytest.mark.parametrize("render", RENDERERS)
def test_random_calibration_cannot_be_overlooked(render) -> None:
    assert "ranges from noise" in render(random_report())
    assert "ranges from noise" not in render(good_report())


def test_html_banner_of_random_calibration_is_red() -> None:
    assert '<div class="banner red"><strong>Random calibration' in render_html(random_report())
    assert '<div class="banner red">' not in render_html(good_report())


@pytest.mark.parametrize("render", RENDERERS)
def test_fallbacks_and_missing_figures_are_shown(render) -> None:
    text = " ".join(render(good_report()).split())
    assert "no int8 kernel for ConvTranspose" in text
    assert "not measured (no device)" in text


@pytest.mark.parametrize("render", RENDERERS)
def test_a_failed_backend_shows_its_reason(render) -> None:
    text = render(bare_report())
    assert "failed" in text
    assert "no parser" in text


def test_names_of_a_hostile_model_stay_text() -> None:
    evil = '<img src=x onerror="alert(1)">[bold]|'
    model = msgspec.structs.replace(good_report().model, name=evil)
    rows = [accuracy_row(evil, 0.9)]
    accuracy = msgspec.structs.replace(good_report().accuracy, artifacts=rows)
    report = good_report(model=model, accuracy=accuracy, warnings=[evil], reasons=[evil])
    assert "<img" not in render_html(report)
    assert "[bold]" in render_terminal(report)
    markdown = render_markdown(report)
    assert "<img" not in markdown
    row = next(line for line in markdown.splitlines() if line.startswith("| &lt;img"))
    assert row.count("|") - row.count("\\|") == 9


def test_terminal_keeps_to_its_width_and_has_no_colors() -> None:
    text = render_terminal(good_report(), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_terminal_ends_with_verdict_and_headline() -> None:
    lines = render_terminal(good_report()).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("pass: digits.onnx"))
    assert lines[start + 1].startswith("top1 drop")
    assert not any("backend" in line for line in lines[start:])


def test_many_classes_are_cut_to_the_worst() -> None:
    classes = {str(k): {"original": 0.9, "value": 0.9 - k / 1e4} for k in range(500)}
    row = msgspec.structs.replace(accuracy_row("model.onnx", 0.9), per_class=classes)
    accuracy = msgspec.structs.replace(good_report().accuracy, artifacts=[row])
    page = render_html(good_report(accuracy=accuracy))
    assert page.count("<title>class ") == 20
    assert ">class 499<" in page
    assert ">class 1<" not in page


def test_a_gate_that_is_off_says_so() -> None:
    gate = msgspec.structs.replace(
        good_report().gates[0], name="accuracy", limit="off", passed=None
    )
    for render in (render_html, render_markdown):
        assert "switched off" in render(good_report(gates=[gate]))
        undecided = msgspec.structs.replace(gate, limit="1 points")
        assert "inconclusive" in render(good_report(gates=[undecided]))


def test_launches_are_shown_before_and_after() -> None:
    page = render_html(good_report(engines=engine_rows()[1:]))
    assert "10 launches per run, the original takes 21" in page


def test_classes_that_did_not_change_need_no_chart() -> None:
    classes = {str(k): {"original": 0.9, "value": 0.9} for k in range(4)}
    row = msgspec.structs.replace(accuracy_row("model.onnx", 0.9), per_class=classes)
    accuracy = msgspec.structs.replace(good_report().accuracy, artifacts=[row])
    assert "None of the 4 classes changed in model.onnx." in render_html(
        good_report(accuracy=accuracy)
    )


def test_a_backend_without_a_file_states_no_size() -> None:
    row = msgspec.structs.replace(engine_rows()[0], file="", bytes=0)
    report = good_report(engines=[row])
    for render in RENDERERS:
        assert " 0 B" not in render(report)


@pytest.mark.parametrize(
    ("render", "cell"), [(render_html, "<td>{}</td>"), (render_markdown, "| {} |")]
)
def test_passes_that_changed_nothing_take_one_line(render, cell: str) -> None:
    page = render(good_report())
    assert "Changed nothing: fold.constants." in page
    assert cell.format("fold.constants") not in page
    assert cell.format("fuse.conv-batchnorm") in page


def banner(page: str) -> str:
    return page[page.index('class="banner') : page.index('class="facts')]


def test_an_engine_that_was_not_run_is_in_the_banner() -> None:
    assert "model.tensorrt_rtx.engine was built but not run here (no device)" in banner(
        render_html(good_report())
    )
    timed = Latency(artifacts=good_report().latency.artifacts[:1])
    assert "not run" not in banner(render_html(good_report(latency=timed)))


def test_warnings_stand_before_the_figures() -> None:
    assert "was built for batch 1 to 16" in banner(render_html(good_report()))


def test_latency_names_its_processor() -> None:
    facts = {"cpu": "Some CPU", "cpu_flags": "avx2"}
    assert "Timed on Some CPU (avx2)." in render_html(good_report(environment=facts))
    assert "Timed on" not in render_html(good_report(environment={}))


@pytest.mark.parametrize(("before", "doubt"), [(9, True), (10, False), (None, False)])
def test_more_launches_than_before_are_a_doubt(before: int | None, doubt: bool) -> None:
    row = msgspec.structs.replace(engine_rows()[1], launches_before=before)
    page = render_html(good_report(engines=[row]))
    assert ("only timing on the GPU tells" in page) is doubt


@pytest.mark.parametrize(("ratio", "said"), [(2.7, True), (0.9, False)])
def test_an_engine_above_the_original_size_is_explained(ratio: float, said: bool) -> None:
    row = msgspec.structs.replace(good_report().size[2], ratio=ratio)
    assert ("they outweigh" in render_html(good_report(size=[row]))) is said
