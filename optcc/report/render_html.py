"""The report as one HTML file that needs nothing else: pictures first, tables under them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from optcc.report import pictures
from optcc.report.headline import headline, is_idle, is_random, not_run, red_findings, worst_row
from optcc.report.schema import Percentiles, Report
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
    engines = {row.file for row in report.engines if row.file.endswith(".engine")}
    return _template().render(
        r=report,
        banner=_BANNERS.get(report.verdict, "warn"),
        facts=headline(report),
        red=red_findings(report),
        random=is_random(report),
        worst=worst_row(report),
        refused=_refused(report),
        not_run=not_run(report),
        busy=[row for row in report.passes if not is_idle(row)],
        idle=list(dict.fromkeys(row.name for row in report.passes if is_idle(row))),
        pictures=_pictures(report),
        bulky=any(row.file in engines and row.ratio > 1 for row in report.size),
        machine=_machine(report),
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


def _machine(report: Report) -> str:
    """Name the processor that the latency was taken on, with the kernels it can run."""
    cpu, flags = (report.environment.get(key, "") for key in ("cpu", "cpu_flags"))
    return f"{cpu} ({flags})" if cpu and flags else cpu


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
