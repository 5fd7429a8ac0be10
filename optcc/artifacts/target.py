"""Whether OUT may be replaced, and how: as a whole, or file by file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optcc.artifacts.manifest import is_ours
from optcc.artifacts.names import Site, beside, inside
from optcc.artifacts.swap import KEPT_IN_PLACE
from optcc.errors import ConfigError

__all__ = ["Target", "check_replaceable", "find_target"]

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Target:
    """OUT with its links resolved.

    Attributes:
        in_place: Why files must be replaced one by one; empty when the folder moves in whole.
    """

    out: Path
    in_place: str

    @property
    def site(self) -> Site:
        """Where temporary things live."""
        return inside(self.out) if self.in_place else beside(self.out)

    @property
    def failed(self) -> Path:
        """Where the report of a failed run goes."""
        return self.out.with_name(f"{self.out.name}.failed")


def find_target(out: Path) -> Target:
    """Resolve `out` and find out how it can be replaced. Changes nothing."""
    real = Path(os.path.realpath(out))
    if not real.is_dir():
        return Target(real, "")
    if os.path.ismount(real) or _is_bind_mount(real):
        return Target(real, "it is a mount point")
    if real == Path(os.path.realpath(Path.cwd())):
        return Target(real, "it is the working folder")
    if not os.access(real.parent, os.W_OK | os.X_OK):
        return Target(real, "its parent folder is not writable")
    return Target(real, "")


def check_replaceable(target: Target, *, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse to replace what is not ours, and what must never be replaced.

    Raises:
        ConfigError: OUT holds foreign files and `force` is off, or it holds an input, the working
            folder or a home folder.
    """
    out = target.out
    _refuse_precious(out, inputs)
    if force:
        return
    if os.path.lexists(out) and not _is_free(out):
        raise ConfigError(
            f"{out} exists and was not written by optcc",
            hint="choose another -o, or add --force to replace all that it holds",
            where=str(out),
        )
    if os.path.lexists(target.failed) and not _is_failure_folder(target.failed):
        raise ConfigError(
            f"{target.failed} exists and was not written by optcc",
            hint="a failed run would replace it: choose another -o, or add --force",
            where=str(target.failed),
        )


def _refuse_precious(out: Path, inputs: Sequence[Path]) -> None:
    def refuse(why: str) -> ConfigError:
        return ConfigError(f"{out} cannot be the output folder: {why}", hint="choose another -o")

    cwd = Path(os.path.realpath(Path.cwd()))
    if out == Path(out.anchor) or out == _home():
        raise refuse("it must be a folder of its own")
    if out != cwd and cwd.is_relative_to(out):
        raise refuse("the working folder lies in it")
    for path in inputs:
        if Path(os.path.realpath(path)).is_relative_to(out):
            raise refuse(f"the input {path.name} lies in it")


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))


def _is_free(out: Path) -> bool:
    if not out.is_dir():
        return False
    site = inside(out)
    if site.replacing.exists() or is_ours(out):
        return True
    return all(p.name == KEPT_IN_PLACE or site.owns(p.name) for p in out.iterdir())


def _is_failure_folder(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        report = json.loads((folder / "report.json").read_bytes())
    except FileNotFoundError:
        return all(p.name == "trace.jsonl" for p in folder.iterdir())
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and "schema_version" in report


def _is_bind_mount(folder: Path) -> bool:
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    points = (line.split(" ")[4] for line in lines)
    escaped = str(folder).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    return escaped in points
