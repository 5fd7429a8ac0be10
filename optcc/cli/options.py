"""Options that several commands take, each written once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from optcc.config.request import Precision
from optcc.config.selection import PassSelection

__all__ = [
    "CalibOption",
    "OnlyPassOption",
    "PassesOption",
    "PrecisionOption",
    "RecipeOption",
    "SkipPassOption",
    "SurgeonOption",
    "names",
    "selection",
]

PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        help="Numeric format of the heavy layers [default: int8 when calibration data is "
        "found, else fp16]."
    ),
]
CalibOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="Calibration data: file.npz, folder of npz, module:callable, or random "
        "[default: calibration_data/ beside the model or here].",
    ),
]
PassesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="Passes of stage simplify, in this order; +NAME adds one to those of the preset.",
    ),
]
OnlyPassOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Of stage simplify run only these; globs, repeatable."),
]
SkipPassOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Leave passes out; globs, repeatable."),
]
SurgeonOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="Run a graphsurgeon function before stage simplify, verified; repeatable.",
    ),
]
RecipeOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML with [passes] run, only, skip."),
]


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Split repeated and comma-separated values; the first of two equal ones stays."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
    return tuple(dict.fromkeys(part for part in parts if part))


def selection(
    passes: Sequence[str] | None,
    only: Sequence[str] | None,
    skip: Sequence[str] | None,
    surgeon: Sequence[str] | None,
) -> PassSelection:
    """Return what the four options ask for together.

    Raises:
        ConfigError: They contradict each other.
    """
    return PassSelection(
        run=names(passes), only=names(only), skip=names(skip), surgeons=tuple(surgeon or ())
    )
