"""What was found of a finished output folder, and its words on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "VERIFICATION_VERSION",
    "CheckName",
    "CheckOutcome",
    "FolderCheck",
    "FolderVerification",
    "render_verification",
]

VERIFICATION_VERSION = "1.0"

CheckName = Literal["leftovers", "files", "report", "model", "engine", "numbers"]
CheckOutcome = Literal["ok", "failed", "not checked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCheck:
    """One thing that was checked, or that could not be.

    Attributes:
        name: Of the kind of check; stable.
        file: That it is about; empty for the folder as a whole.
        text: What was found, with the name of the file in it.
    """

    name: CheckName
    file: str
    outcome: CheckOutcome
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderVerification:
    """The answer of `optcc verify OUT`.

    Attributes:
        fine: Whether no check failed.
        original: What the numbers were compared with; empty when there was no original.
        inputs: What the models were run on; empty when they were not.
    """

    schema_version: str = VERIFICATION_VERSION
    folder: str
    fine: bool
    original: str = ""
    inputs: str = ""
    checks: list[FolderCheck] = field(default_factory=list)


def render_verification(found: FolderVerification) -> str:
    """Return one line per check, then how many failed and what was not checked."""
    width = len("not checked")
    lines = [f"{c.outcome:<{width}}  {c.text}" for c in found.checks]
    counts = {o: sum(c.outcome == o for c in found.checks) for o in ("ok", "failed", "not checked")}
    total = f"{counts['ok']} ok, {counts['failed']} failed, {counts['not checked']} not checked"
    verdict = "fine" if found.fine else "not fine"
    ran = f"models ran on {found.inputs}" if found.inputs else "models were not run"
    return "\n".join([*lines, "", f"{verdict}: {found.folder}, {total}; {ran}"]) + "\n"
