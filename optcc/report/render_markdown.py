"""The report as Markdown, for a pull request or a wiki."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from optcc.report.headline import headline, red_findings
from optcc.report.schema import AccuracyRow, Report
from optcc.report.verdict import is_switched_off
from optcc.report.wording import (
    achieved_text,
    byte_size,
    points,
    seconds,
    signed_points,
    speedup,
)

__all__ = ["render_markdown"]


def render_markdown(report: Report) -> str:
    """Return the report as GitHub-flavored Markdown; the same report gives the same text."""
    environment = Environment(  # noqa: S701 - Markdown; `cell` escapes what would break a table
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = _cell
    source = files("optcc.report").joinpath("templates/report.md.j2").read_text("utf-8")
    text = environment.from_string(source).render(
        r=report,
        facts=headline(report),
        red=red_findings(report),
        off=is_switched_off,
        achieved=achieved_text,
        size=byte_size,
        points=points,
        change=signed_points,
        seconds=seconds,
        speedup=speedup,
        noise=_least_sqnr,
    )
    return text.rstrip("\n") + "\n"


def _cell(text: str) -> str:
    """Keep `text` inside one table cell."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _least_sqnr(row: AccuracyRow) -> str:
    known = [o.sqnr_db for o in row.outputs if o.sqnr_db is not None]
    if not row.outputs:
        return "-"
    return f"{min(known):.1f} dB" if known else "exact"
