"""`optcc report`: render again what an output folder holds."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from optcc.cli import console

__all__ = ["Format", "report_command"]


class Format(StrEnum):
    """How a report is written to stdout."""

    TERMINAL = "terminal"
    HTML = "html"
    MD = "md"
    JSON = "json"


def report_command(
    folder: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output folder.", show_default=False)
    ],
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TERMINAL,
) -> None:
    """Render the report in OUT again."""
    if form is Format.TERMINAL:
        from optcc.cli.rendering import print_report
        from optcc.driver import load_report

        print_report(load_report(folder))
        return
    from optcc.driver import render_report

    console.out(render_report(folder, form.value))
