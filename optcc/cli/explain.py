"""`optcc explain`: why nodes were changed or left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optcc.cli import console
from optcc.cli.options import (
    OnlyPassOption,
    PassesOption,
    SkipPassOption,
    SurgeonOption,
    selection,
)
from optcc.config.request import Precision

__all__ = ["explain_command"]


def explain_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="ONNX file, or an output folder.", show_default=False),
    ],
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what concerns this node.")
    ] = None,
    one_pass: Annotated[
        str | None, typer.Option("--pass", metavar="NAME", help="Only this pass; a glob will do.")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Preset whose stages are run [default: fp32].")
    ] = None,
    passes: PassesOption = None,
    only_pass: OnlyPassOption = None,
    skip_pass: SkipPassOption = None,
    surgeon: SurgeonOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is rewritten, and what is left alone and why; writes nothing."""
    from optcc.driver import explain
    from optcc.report.explanation import render_explanation

    progress = console.make_progress()
    try:
        found = explain(
            source,
            node=node,
            passes=one_pass,
            precision=precision,
            selection=selection(passes, only_pass, skip_pass, surgeon),
            progress=progress,
        )
    finally:
        progress.close()
    if as_json:
        from optcc.cli.listing import to_json

        console.out(to_json(found))
        return
    console.out(console.printable(render_explanation(found)))
