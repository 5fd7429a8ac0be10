"""Names of the temporary things that a run keeps beside OUT, or inside it."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Site", "beside", "inside"]

_LONGEST_NAME_BYTES = 180


@dataclass(frozen=True, slots=True)
class Site:
    """A folder that temporary things live in, and the prefix that ties them to one OUT.

    Attributes:
        folder: Where they live: the parent of OUT, or OUT itself.
        stem: Prefix of every name; empty inside OUT.
    """

    folder: Path
    stem: str

    def new(self, kind: str) -> Path:
        """Return a fresh path; `kind` is a short word such as `stage`."""
        return self.folder / f"{self.stem}.optcc-{kind}-{secrets.token_hex(4)}"

    @property
    def lock(self) -> Path:
        """The lock file; held while a run works on OUT."""
        return self.folder / f"{self.stem}.optcc-lock"

    @property
    def aside(self) -> Path:
        """Where the earlier OUT waits while the new one moves in.

        The name is the journal: when it exists and OUT does not, the move was cut short.
        """
        return self.folder / f"{self.stem}.optcc-old"

    @property
    def replacing(self) -> Path:
        """Marks an OUT whose files were being replaced one by one."""
        return self.folder / f"{self.stem}.optcc-replacing"

    def owns(self, name: str) -> bool:
        """Whether `name` is one of ours."""
        prefix = re.escape(self.stem)
        ours = rf"{prefix}\.optcc-(lock|old|replacing|[a-z]+-[0-9a-f]{{8}})"
        return re.fullmatch(ours, name) is not None

    def leftovers(self) -> list[Path]:
        """Return temporary folders and files present now, sorted; the lock and journal are not."""
        kept = {self.lock.name, self.aside.name, self.replacing.name}
        names = sorted(p.name for p in self.folder.iterdir())
        return [self.folder / n for n in names if self.owns(n) and n not in kept]


def beside(out: Path) -> Site:
    """Return the site in the parent of `out`."""
    name = out.name
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        name = hashlib.sha256(name.encode()).hexdigest()[:32]
    return Site(out.parent, f".{name}")


def inside(out: Path) -> Site:
    """Return the site in `out` itself."""
    return Site(out, "")
