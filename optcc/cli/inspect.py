"""`optcc inspect`: what a model or an engine file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optcc.cli import console

__all__ = ["inspect_command"]


def inspect_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="ONNX file or engine.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model or an engine file holds."""
    from optcc.driver import inspect_file
    from optcc.report.inspection import ModelInspection, render_engine, render_model

    found = inspect_file(file)
    if as_json:
        from optcc.cli.listing import to_json

        console.out(to_json(found))
        return
    text = render_model(found) if isinstance(found, ModelInspection) else render_engine(found)
    console.out(console.printable(text))
