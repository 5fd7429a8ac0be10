"""Storage primitives: errors as `WriteError`, durable trees, removal that does not fail."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from optcc.errors import WriteError

__all__ = [
    "as_write_error",
    "disk_is_full",
    "list_files",
    "remove_tree",
    "storage_error_of",
    "sync_folder",
    "sync_tree",
    "write_errors",
]

_FULL = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would exceed the largest size allowed",
    errno.EROFS: "the file system is read-only",
}
_FULL_BELOW_BYTES = 64 * 1024


def as_write_error(error: OSError, where: Path) -> WriteError:
    """Say what kept us from writing to `where`."""
    reason = _FULL.get(error.errno or 0) or (
        os.strerror(error.errno) if error.errno else str(error)
    )
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = "free some space, or choose another folder with -o" if full else "choose another -o"
    return WriteError(f"cannot write {where}: {reason}", hint=hint, where=str(where))


@contextmanager
def write_errors(where: Path) -> Iterator[None]:
    """Turn every `OSError` of the block into a `WriteError` about `where`."""
    try:
        yield
    except OSError as error:
        raise as_write_error(error, where) from error


def storage_error_of(error: BaseException) -> OSError | None:
    """Return the disk-full or read-only error that `error` is or comes from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, OSError) and current.errno in _FULL:
            return current
        current = current.__cause__ or current.__context__
    return None


def disk_is_full(folder: Path) -> bool:
    """Whether the disk under `folder` has practically nothing left for us."""
    try:
        return shutil.disk_usage(folder).free < _FULL_BELOW_BYTES
    except OSError:
        return False


def list_files(folder: Path) -> list[Path]:
    """Return every file below `folder`, relative, sorted by its POSIX name."""
    found = [p.relative_to(folder) for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
    return sorted(found, key=Path.as_posix)


def sync_tree(folder: Path) -> None:
    """Bring all files and folders below `folder` to the disk."""
    for path in (folder / name for name in list_files(folder)):
        if path.is_symlink() or not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for inner in sorted(p for p in folder.rglob("*") if p.is_dir()):
        sync_folder(inner)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the system can do that for folders."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder may take names without showing them
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> bool:
    """Remove a file or a folder with all it holds.

    Returns:
        Whether nothing is left; what cannot be removed stays, without an error.
    """
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            _open_folders(path)
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        with suppress(OSError):
            Path(folder).chmod(stat.S_IRWXU)
