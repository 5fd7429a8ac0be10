"""`optcc passes` and `optcc doctor`: what is installed, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optcc.cli import console
from optcc.cli.options import (
    CalibOption,
    OnlyPassOption,
    PassesOption,
    PrecisionOption,
    RecipeOption,
    SkipPassOption,
    SurgeonOption,
    selection,
)
from optcc.config.request import CompileRequest
from optcc.errors import ConfigError

if TYPE_CHECKING:
    from optcc.backends.doctor import DoctorRow

__all__ = ["doctor_command", "passes_command", "render_doctor", "to_json"]


def passes_command(  # one parameter per option: this is how typer reads them
    plan: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Show what compile would run for this model."),
    ] = None,
    precision: PrecisionOption = None,
    calib: CalibOption = None,
    passes: PassesOption = None,
    only_pass: OnlyPassOption = None,
    skip_pass: SkipPassOption = None,
    surgeon: SurgeonOption = None,
    recipe: RecipeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed passes, or those of a plan."""
    from optcc.report.inspection import render_passes, render_plan

    chosen = selection(passes, only_pass, skip_pass, surgeon)
    if plan is None:
        _refuse_alone(bool(chosen or recipe or precision or calib))
        from optcc.driver import list_passes

        found = list_passes()
        console.out(to_json(found) if as_json else render_passes(found))
        return
    from optcc.driver import plan_passes

    request = CompileRequest(
        model=plan, precision=precision, calib=calib, passes=chosen, recipe=recipe
    )
    planned = plan_passes(request, console.make_progress())
    console.out(to_json(planned) if as_json else render_plan(planned))


def _refuse_alone(given: bool) -> None:
    if given:
        raise ConfigError(
            "these options change a plan, and no plan was asked for",
            hint="add --plan MODEL",
        )


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which backends work here, and why not."""
    from optcc.backends.doctor import diagnose

    rows = diagnose()
    console.out(to_json(rows) if as_json else render_doctor(rows))


def render_doctor(rows: Sequence[DoctorRow]) -> str:
    """Return one line per row, and the remedy under a row that is not well."""
    width = max((len(row.name) for row in rows), default=0)
    lines = []
    for row in rows:
        mark = "ok" if row.ok else "--"
        known = " ".join(part for part in (row.version, row.detail) if part)
        lines.append(f"{mark}  {row.name:<{width}}  {known}".rstrip())
        if row.hint and not row.ok:
            lines.append(f"    {'':<{width}}  hint: {row.hint}")
    return "\n".join(lines) + "\n"


def to_json(value: object) -> str:
    """Return dataclasses, and lists of them, as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
