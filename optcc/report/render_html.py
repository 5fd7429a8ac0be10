"""The report as one HTML file that needs nothing else: pictures first, tables under them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from optcc.report import pictures
from optcc.report.headline import headline, is_random, red_findings, worst_row
from optcc.report.schema import PassRow, Percentiles, Report
from optcc.report.verdict import is_switched_off
from optcc.report.wording import (
    byte_size,
    count,
    metric_value,
    percent,
    seconds,
    signed_points,
    speedup,
)

__all__ = ["render_html"]

_BANNERS = {"pass": "pass", "pass (agreement only)": "pass", "fail": "fail"}


def render_html(report: Report) -> str:
    """Return a self-contained page; the same report gives the same text."""
    return _template().render(
        r=report,
        banner=_BANNERS.get(report.verdict, "warn"),
        facts=headline(report),
        red=red_findings(report),
        random=is_random(report),
        worst=worst_row(report),
        refused=_refused(report),
        busy=[row for row in report.passes if not _is_idle(row)],
        idle=list(dict.fromkeys(row.name for row in report.passes if _is_idle(row))),
        pictures=_pictures(report),
        off=is_switched_off,
        size=byte_size,
        percent=percent,
        metric=metric_value,
        change=signed_points,
        seconds=seconds,
        count=count,
        speedup=speedup,
        number=_number,
        times=_times,
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("optcc.report").joinpath("templates/report.html.j2").read_text("utf-8")
    return environment.from_string(source)


def _pictures(report: Report) -> dict[str, object]:
    return {
        "accuracy": pictures.accuracy_chart(report),
        "per_class": pictures.per_class_chart(report),
        "latency": pictures.latency_chart(report),
        "precision": pictures.precision_chart(report),
        "size": pictures.size_chart(report),
    }


def _is_idle(row: PassRow) -> bool:
    """Whether the pass matched nothing and nothing was checked."""
    return not row.rewrites and not row.rejects and row.check.verdict == "not checked"


def _refused(report: Report) -> list[tuple[str, str, str]]:
    return [
        (row.name, reject.get("node", ""), reject.get("reason", ""))
        for row in report.passes
        for reject in row.rejects
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _times(p: Percentiles | None) -> str:
    return "-" if p is None else f"{p.p50_ms:.3g} / {p.p90_ms:.3g} / {p.p99_ms:.3g}"
