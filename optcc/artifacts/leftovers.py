"""What runs that were killed left behind: restore the earlier OUT, remove the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from optcc.artifacts.folder_lock import locked
from optcc.artifacts.names import Site, beside, inside
from optcc.artifacts.storage import remove_tree
from optcc.errors import WriteError

__all__ = ["remove_leftovers", "sweep"]


def remove_leftovers(out: Path) -> list[str]:
    """Clean up after dead runs on `out`; does nothing while a run is alive or nothing is left.

    Returns:
        Names of what was removed or restored.
    """
    out = Path(os.path.realpath(out))
    done: list[str] = []
    for site in (beside(out), inside(out)):
        with suppress(OSError, WriteError):
            if _anything(site):
                with locked(site.lock, out):
                    done += sweep([site], out)
    return done


def sweep(sites: Iterable[Site], out: Path) -> list[str]:
    """Remove the temporary things of dead runs. The caller holds the lock of `out`.

    Returns:
        Names of what was removed or restored.
    """
    done: list[str] = []
    for site in sites:
        if os.path.lexists(site.aside):
            if os.path.lexists(out):
                remove_tree(site.aside)
            else:
                site.aside.rename(out)
            done.append(site.aside.name)
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            done += [p.name for p in site.leftovers() if remove_tree(p)]
    return done


def _anything(site: Site) -> bool:
    return site.folder.is_dir() and any(site.owns(p.name) for p in site.folder.iterdir())
