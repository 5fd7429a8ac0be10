"""Put a finished folder in the place of another one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from optcc.artifacts.names import Site, inside
from optcc.artifacts.storage import list_files, remove_tree, sync_folder, sync_tree

__all__ = ["KEPT_IN_PLACE", "exchange", "replace_files", "replace_folder"]

KEPT_IN_PLACE = "lost+found"
"""The folder that a file system puts into its own root; never ours to remove."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_NOT_OFFERED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_MANIFEST = "manifest.json"


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step.

    Returns:
        False when the system or the file system does not offer it.

    Raises:
        OSError: It is offered and fails.
    """
    if os.name != "posix":
        return False
    a, b = os.fsencode(one), os.fsencode(other)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform.startswith("linux") and hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, a, _AT_FDCWD, b, _RENAME_EXCHANGE)
    elif sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(a, b, _RENAME_SWAP)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _NOT_OFFERED:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def replace_folder(new: Path, out: Path, aside: Path) -> None:
    """Let `new` become `out`; a kill at any moment leaves the old or the new one whole.

    Whatever `out` was is removed, or left at `new` or `aside` for a later run to remove.

    Args:
        new: Finished folder on the same file system; its files are on the disk.
        out: The name that it gets; a folder, a file or nothing.
        aside: Where the earlier folder waits if the system cannot exchange two names.
    """
    if not os.path.lexists(out):
        new.rename(out)
    elif not exchange(new, out):
        _replace_in_two_steps(new, out, aside)
    sync_folder(out.parent)
    remove_tree(new)
    remove_tree(aside)


def _replace_in_two_steps(new: Path, out: Path, aside: Path) -> None:
    remove_tree(aside)
    out.rename(aside)
    try:
        new.rename(out)
    except BaseException:
        aside.rename(out)
        raise


def replace_files(new: Path, out: Path) -> None:
    """Bring the files of `new` into `out` one by one, `manifest.json` last.

    `new` may lie inside `out` or on another file system. Between the first and the last file `out`
    carries a marker, so that a later run knows that it may replace what it finds.
    """
    site = inside(out)
    site.replacing.touch()
    sync_folder(out)
    names = list_files(new)
    for name in names:
        if name.as_posix() != _MANIFEST:
            _move(new, name, site)
    _remove_all_but(names, out, site)
    sync_tree(out)
    if (new / _MANIFEST).exists():
        _move(new, Path(_MANIFEST), site)
        sync_tree(out)
    site.replacing.unlink()
    sync_folder(out)


def _move(new: Path, name: Path, site: Site) -> None:
    target = site.folder / name
    for folder in (site.folder / p for p in reversed(name.parents)):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        remove_tree(target)
    try:
        (new / name).replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = site.new("part")
        shutil.copyfile(new / name, part)
        part.replace(target)


def _remove_all_but(names: list[Path], out: Path, site: Site) -> None:
    keep = {n.as_posix() for n in names} | {_MANIFEST}
    for name in list_files(out):
        top = name.parts[0]
        if name.as_posix() not in keep and top != KEPT_IN_PLACE and not site.owns(top):
            (out / name).unlink()
    for folder in sorted((p for p in out.rglob("*") if p.is_dir()), reverse=True):
        top = folder.relative_to(out).parts[0]
        if top != KEPT_IN_PLACE and not site.owns(top):
            with suppress(OSError):
                folder.rmdir()
