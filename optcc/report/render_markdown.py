"""The report as Markdown, for a pull request or a wiki."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from optcc.report.headline import headline, is_idle, red_findings
from optcc.report.schema import AccuracyRow, Report
from optcc.report.verdict import is_switched_off
from optcc.report.wording import (
    achieved_text,
    byte_size,
    metric_value,
    percent,
    seconds,
    signed_points,
    speedup,
)

__all__ = ["render_markdown"]


def render_markdown(report: Report) -> str:
    """Return the report as GitHub-flavored Markdown; the same report gives the same text."""
    text = _template().render(
        r=report,
        facts=headline(report),
        red=red_findings(report),
        busy=[row for row in report.passes if not is_idle(row)],
        idle=list(dict.fromkeys(row.name for row in report.passes if is_idle(row))),
        off=is_switched_off,
        achieved=achieved_text,
        size=byte_size,
        percent=percent,
        metric=metric_value,
        change=signed_points,
        seconds=seconds,
        speedup=speedup,
        noise=_least_sqnr,
    )
    return text.rstrip("\n") + "\n"


@cache
def _template() -> Template:
    environment = Environment(  # noqa: S701 - Markdown; the filter `plain` escapes
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = _plain
    source = files("optcc.report").joinpath("templates/report.md.j2").read_text("utf-8")
    return environment.from_string(source)


def _plain(text: str) -> str:
    """Keep `text` inside one table cell, and markup in it from acting."""
    marked = re.sub(r"([\\|*`\[\]])", r"\\\1", text.replace("\n", " "))
    return marked.replace("&", "&amp;").replace("<", "&lt;")


def _least_sqnr(row: AccuracyRow) -> str:
    known = [o.sqnr_db for o in row.outputs if o.sqnr_db is not None]
    if not row.outputs:
        return "-"
    return f"{min(known):.1f} dB" if known else "exact"
