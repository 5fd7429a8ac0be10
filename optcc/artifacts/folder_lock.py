"""One run at a time per output folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from optcc.errors import WriteError

__all__ = ["locked"]

_PATIENCE_S = 0.2


@contextmanager
def locked(lock: Path, out: Path) -> Iterator[None]:
    """Hold the lock file of `out`; it is removed again afterwards.

    The system frees the lock of a run that was killed; only its empty file stays.

    Raises:
        WriteError: Another run holds it.
        OSError: The file cannot be made.
    """
    from filelock import FileLock, Timeout

    handle = FileLock(lock)
    try:
        handle.acquire(timeout=_PATIENCE_S, poll_interval=0.05)
    except Timeout as error:
        if not lock.exists():
            raise WriteError(f"cannot write in {lock.parent}", hint="choose another -o") from error
        raise WriteError(
            f"another run is writing {out}", hint="wait until it ends, or choose another -o"
        ) from error
    try:
        yield
    finally:
        if os.name == "posix":  # elsewhere an open file cannot be removed
            with suppress(OSError):
                lock.unlink()
        handle.release()
