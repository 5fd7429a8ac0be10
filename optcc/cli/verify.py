"""`optcc verify`: a finished folder, or two models side by side."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optcc.cli import console
from optcc.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from optcc.report.comparison import ModelComparison

__all__ = ["verify_command"]


def verify_command(
    first: Annotated[
        Path,
        typer.Argument(metavar="OUT|A", help="Output folder, or a model.", show_default=False),
    ],
    second: Annotated[
        Path | None,
        typer.Argument(metavar="B", help="Model to compare with A.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="ORIGINAL", help="The model that OUT was made from.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Samples to run on, as for --calib [default: the recorded ones, else seeded].",
        ),
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Sizes of dynamic inputs.")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare inner values of the same name too.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="T", help="Error over the largest magnitude [default: rounding]."),
    ] = None,
    reproducer: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder for the smallest models that differ."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a finished OUT, or compare the models A and B."""
    if second is None:
        _only_for_two(
            {"--layers": layers, "--tolerance": tolerance is not None, "--reproducer": reproducer}
        )
        _verify_folder(first, model, inputs, shapes, as_json=as_json)
        return
    if model is not None:
        raise ConfigError("--model is for an output folder alone, not for two models")
    _compare(first, second, inputs, shapes, layers, tolerance, reproducer, as_json)


def _only_for_two(options: dict[str, object]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(f"{given[0]} needs two models", hint="optcc verify A B")


def _verify_folder(
    folder: Path, model: Path | None, inputs: str | None, shapes: str | None, *, as_json: bool
) -> None:
    from optcc.driver import verify_output
    from optcc.report.verification import render_verification

    progress = console.make_progress()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a user's callable may print
            found = verify_output(
                folder, model=model, inputs=inputs, shapes=shapes, progress=progress
            )
    finally:
        progress.close()
    _print(found, render_verification(found), as_json=as_json)
    if not found.fine:
        failed = [c for c in found.checks if c.outcome == "failed"]
        console.error(VerificationError(f"{folder} is not as it was written: {failed[0].text}"))
        raise typer.Exit(int(VerificationError.exit_code))


def _compare(
    first: Path,
    second: Path,
    inputs: str | None,
    shapes: str | None,
    layers: bool,
    tolerance: float | None,
    reproducer: Path | None,
    as_json: bool,
) -> None:
    from optcc.driver import compare_models
    from optcc.report.comparison import render_comparison

    progress = console.make_progress()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = compare_models(
                first,
                second,
                inputs=inputs,
                shapes=shapes,
                layers=layers,
                tolerance=tolerance,
                reproducer=reproducer,
                progress=progress,
            )
    finally:
        progress.close()
    _print(found, render_comparison(found), as_json=as_json)
    if not found.equal:
        console.error(_difference(found))
        raise typer.Exit(int(VerificationError.exit_code))


def _difference(found: ModelComparison) -> VerificationError:
    worst = next(o for o in found.outputs if not o.equal)
    return VerificationError(f"{found.second} differs from {found.first}: output {worst.name!r}")


def _print(found: object, text: str, *, as_json: bool) -> None:
    if as_json:
        from optcc.cli.listing import to_json

        console.out(to_json(found))
        return
    console.out(console.printable(text))
