"""A report on this terminal, in its width and colors."""

from __future__ import annotations

import sys

from rich.console import Console

from optcc.cli import console
from optcc.report import render_terminal
from optcc.report.schema import Report

__all__ = ["print_report"]

_PLAIN_WIDTH = 100


def print_report(report: Report) -> None:
    """Print on stdout; plain text of a fixed width when it is not a terminal."""
    if not sys.stdout.isatty():
        console.out(render_terminal.render_terminal(report, width=_PLAIN_WIDTH))
        return
    render_terminal.print_report(report, Console(file=sys.stdout, highlight=False))
