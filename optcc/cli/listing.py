"""`optcc passes` and `optcc doctor`: what is installed, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from optcc.cli import console

if TYPE_CHECKING:
    from optcc.backends.doctor import DoctorRow

__all__ = ["doctor_command", "passes_command", "render_doctor", "to_json"]


def passes_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed passes."""
    from optcc.driver import list_passes
    from optcc.report.inspection import render_passes

    found = list_passes()
    console.out(to_json(found) if as_json else render_passes(found))


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
