"""Which passes a user wants to run: options of the command line and the `[passes]` of a recipe.

```toml
[passes]
run = ["+acme.fuse-swish"]    # as --passes: a list, or additions when each begins with "+"
only = ["fuse.*", "fold.*"]   # as --only-pass
skip = ["fuse.qkv"]           # as --skip-pass
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from optcc.errors import ConfigError

__all__ = ["PassSelection", "read_recipe"]

_KEYS = ("run", "only", "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSelection:
    """Changes to the plan of a preset; empty means the preset as it is.

    Attributes:
        run: Passes of the open stage in order; each with a leading "+" adds to the preset's.
        only: Names or globs: other passes of the open stage are left out.
        skip: Names or globs that are left out, in every stage that is no branch.
        surgeons: `file.py:function`, graphsurgeon functions that run before the open stage.
    """

    run: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    surgeons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        marked = [name for name in self.run if name.startswith("+")]
        if marked and len(marked) != len(self.run):
            raise ConfigError(
                f"passes to add and passes to run are mixed: {', '.join(self.run)}",
                hint="give each name a leading + to add it, or none to list all that run",
            )

    def __bool__(self) -> bool:
        return bool(self.run or self.only or self.skip or self.surgeons)

    def joined(self, other: PassSelection) -> PassSelection:
        """Return both selections as one; `other` comes second."""
        return PassSelection(
            run=self.run + other.run,
            only=self.only + other.only,
            skip=self.skip + other.skip,
            surgeons=self.surgeons + other.surgeons,
        )


def read_recipe(path: Path) -> PassSelection:
    """Read a recipe file.

    Raises:
        ConfigError: It cannot be read, is no TOML, or has unknown keys or wrong types.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        what = f"the recipe cannot be read: {error.strerror}"
        raise ConfigError(what, where=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"the recipe is no TOML: {error}", where=str(path)) from error
    _only_known(table, ("passes",), path)
    rows = table.get("passes", {})
    if not isinstance(rows, dict):
        raise ConfigError("passes must be a table: [passes]", where=str(path))
    _only_known(rows, _KEYS, path)
    return PassSelection(**{key: _names(rows, key, path) for key in _KEYS})


def _names(rows: Mapping[str, object], key: str, path: Path) -> tuple[str, ...]:
    names = rows.get(key, [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ConfigError(f"passes.{key} must be a list of texts", where=str(path))
    return tuple(names)


def _only_known(table: Mapping[str, object], known: tuple[str, ...], path: Path) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"unknown key {key!r} in the recipe", hint=hint, where=str(path))
