"""The report on a terminal: one table per question; verdict and headline facts last, in sight."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from optcc.report.headline import headline, is_random, red_findings
from optcc.report.schema import EngineRow, Report
from optcc.report.wording import (
    achieved_text,
    byte_size,
    metric_value,
    percent,
    ratio,
    seconds,
    signed_points,
    speedup,
)

__all__ = ["print_report", "render_terminal"]

_STYLES = {"pass": "bold green", "pass (agreement only)": "bold green", "fail": "bold red"}


def render_terminal(report: Report, *, width: int = 100) -> str:
    """Return the report as plain text of at most `width` columns, without colors."""
    out = StringIO()
    console = Console(
        file=out, width=width, no_color=True, force_terminal=False, legacy_windows=False
    )
    print_report(report, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def print_report(report: Report, console: Console) -> None:
    """Print the report on `console`."""
    title = "random calibration" if is_random(report) else "calibration"
    for finding in red_findings(report):
        text = Text(finding.message, style="bold red")
        console.print(Panel(text, title=title, border_style="red"))
    for table in (_accuracy(report), _latency(report), _engines(report)):
        if table.row_count:
            console.print(table)
            console.print()
    _print_fallbacks(report, console)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    _print_verdict(report, console)
    _print_headline(report, console)


def _print_verdict(report: Report, console: Console) -> None:
    style = _STYLES.get(report.verdict, "bold yellow")
    took = (
        f"{report.model.name}, compiled in {seconds(report.resources.compile_s)} "
        f"with {report.resources.peak_mib:.0f} MiB"
    )
    console.print(Text.assemble((report.verdict, style), f": {took}"))
    for reason in report.reasons:
        console.print(Text(f"  - {reason}"))


def _print_headline(report: Report, console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    for fact in headline(report):
        grid.add_row(fact.label, Text(fact.value, style="bold"), Text(fact.note, style="dim"))
    if grid.row_count:
        console.print(grid)


def _accuracy(report: Report) -> Table:
    table = _table("accuracy", "metric", "original", "artifact", "change", "agreement", "SQNR")
    for row in report.accuracy.artifacts if report.accuracy else []:
        noise = min((o.sqnr_db for o in row.outputs if o.sqnr_db is not None), default=None)
        table.add_row(
            escape(row.file) + (" (simulated)" if row.simulated else ""),
            row.metric or "-",
            metric_value(row.metric, row.original),
            metric_value(row.metric, row.value),
            signed_points(row.drop_points),
            percent(row.agreement),
            "exact" if noise is None else f"{noise:.1f} dB",
        )
    return table


def _latency(report: Report) -> Table:
    table = _table("latency", "original p50", "artifact p50", "speed-up [95 %]")
    for row in report.latency.artifacts:
        table.add_row(
            escape(row.file),
            f"{row.original.p50_ms:.3g} ms" if row.original else "-",
            f"{row.optimized.p50_ms:.3g} ms" if row.optimized else "-",
            escape(speedup(row)),
        )
    return table


def _engines(report: Report) -> Table:
    table = _table("backend", "status", "size", "achieved precision", "runs on")
    sizes = {row.file: row.ratio for row in report.size}
    for row in report.engines:
        table.add_row(f"{row.backend} {row.version}".strip(), row.status, *_engine(row, sizes))
    return table


def _engine(row: EngineRow, sizes: dict[str, float]) -> tuple[str, str, str]:
    if row.status != "built":
        return "-", "-", escape(row.reason)
    share = f" ({ratio(sizes[row.file])})" if row.file in sizes else ""
    size = byte_size(row.bytes) + share if row.bytes else "-"
    return size, achieved_text(row.achieved), escape(row.runs_on or "-")


def _print_fallbacks(report: Report, console: Console) -> None:
    for engine in report.engines:
        for row in engine.fallbacks:
            text = f"fallback: {row.node} runs in {row.got} instead of {row.wanted}: {row.reason}"
            console.print(Text(f"{engine.backend} {text}"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, overflow="fold")
    return table
