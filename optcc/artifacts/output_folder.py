"""The output folder: staged beside OUT, moved in whole, or gone without a trace."""

from __future__ import annotations

import atexit
import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from optcc.artifacts.folder_lock import locked
from optcc.artifacts.leftovers import sweep
from optcc.artifacts.manifest import MANIFEST_NAME
from optcc.artifacts.names import beside
from optcc.artifacts.signals import first_signal_raises, uninterrupted
from optcc.artifacts.storage import (
    as_write_error,
    disk_is_full,
    list_files,
    remove_tree,
    storage_error_of,
    sync_tree,
    write_errors,
)
from optcc.artifacts.swap import replace_files, replace_folder
from optcc.artifacts.target import Target, check_replaceable, find_target
from optcc.errors import BackendError, WriteError

__all__ = ["OutputFolder"]

_CANNOT_MOVE_WHOLE = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)


class OutputFolder:
    """A transaction on OUT.

    Entering checks that OUT may be replaced and can be written, takes the lock, cleans up after
    dead runs and makes `stage`. Leaving without `commit()` or `fail()` removes every trace and
    leaves an earlier OUT as it was, also on Ctrl-C and SIGTERM.

        with OutputFolder(out, force=False, inputs=[model]) as folder:
            folder.write("model.onnx", data)
            folder.write("manifest.json", build_manifest(folder.stage, ...))
            folder.commit()

    Args:
        out: The folder to write.
        force: Replace it whatever it holds.
        inputs: Files that are being read; OUT must not contain them.
    """

    def __init__(self, out: Path, *, force: bool = False, inputs: Sequence[Path] = ()) -> None:
        self.out = out
        self.notes: list[str] = []
        self._force, self._inputs = force, tuple(inputs)
        self._undo, self._signals = ExitStack(), ExitStack()
        self._target: Target | None = None
        self._stage: Path | None = None
        self._parents: list[Path] = []
        self._finished = False

    @property
    def stage(self) -> Path:
        """The folder to write into while the transaction is open."""
        if self._stage is None or self._finished:
            raise RuntimeError("the output folder is not open")
        return self._stage

    @property
    def atomic(self) -> bool:
        """Whether OUT changes in one step."""
        return self._target is None or not self._target.in_place

    def __enter__(self) -> Self:
        with ExitStack() as signals, ExitStack() as undo, write_errors(self.out):
            signals.enter_context(first_signal_raises())
            undo.callback(self._remove_made_parents)
            self._target = self._lock(undo)
            sweep(dict.fromkeys((self._target.site, beside(self._target.out))), self._target.out)
            check_replaceable(self._target, force=self._force, inputs=self._inputs)
            self._stage = self._target.site.new("stage")
            undo.callback(remove_tree, self._stage)
            self._stage.mkdir()
            self._undo, self._signals = undo.pop_all(), signals.pop_all()
        atexit.register(self._undo.close)
        if self._target.in_place:
            self.notes.append(
                f"{self.out} is replaced file by file, which is not atomic: {self._target.in_place}"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        full = self._close()
        if not isinstance(error, Exception) or isinstance(error, WriteError):
            return
        storage = storage_error_of(error)
        if storage is None and full and isinstance(error, BackendError):
            storage = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if storage is not None:
            raise as_write_error(storage, self.out) from error

    def _close(self) -> bool:
        """Remove what is ours and unlock; return whether the disk was full before."""
        try:
            with uninterrupted():
                full = self._stage is not None and disk_is_full(self._stage)
                self._undo.close()
        except BaseException:
            self._undo.close()  # a signal came first; the next ones are dropped
            raise
        finally:
            atexit.unregister(self._undo.close)
            self._signals.close()
        return full

    def write(self, name: str, data: bytes) -> Path:
        """Write one file of the stage.

        Raises:
            WriteError: The disk does not take it.
        """
        path = self.stage / name
        with write_errors(self.out):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return path

    def commit(self) -> Path:
        """Let the stage become OUT.

        Raises:
            WriteError: The disk does not take it; OUT is as before.
        """
        stage, target = self.stage, self._opened()
        if not (stage / MANIFEST_NAME).is_file():
            raise RuntimeError(f"the stage holds no {MANIFEST_NAME}")
        with write_errors(self.out):
            sync_tree(stage)
            with uninterrupted():
                self._move_in(stage, target)
                self._finished = True
        return target.out

    def fail(self, keep: Sequence[str] = ()) -> Path | None:
        """Give the run up: keep its report in OUT.failed and leave OUT alone.

        `report.*`, `trace.jsonl` and everything under `reproducer/` are kept.

        Args:
            keep: More names, relative to the stage. Never models or engines of the result.

        Returns:
            OUT.failed, or None when the parent of OUT takes no new folder.
        """
        stage, target = self.stage, self._opened()
        with write_errors(target.failed):
            chosen = [n for n in list_files(stage) if n.as_posix() in keep or _explains(n)]
            try:
                new = self._copy_aside(stage, chosen, target)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    self.notes.append(f"the failure report was not kept: {error.strerror}")
                    return None
                raise
            with uninterrupted():
                replace_folder(new, target.failed, beside(target.failed).aside)
                self._finished = True
        return target.failed

    def _opened(self) -> Target:
        if self._target is None:
            raise RuntimeError("the output folder is not open")
        return self._target

    def _lock(self, undo: ExitStack) -> Target:
        target = find_target(self.out)
        if not target.in_place:
            self._make_parents(target.out.parent)
        undo.enter_context(locked(target.site.lock, self.out))
        return target

    def _make_parents(self, parent: Path) -> None:
        while not parent.exists():
            self._parents.append(parent)
            parent = parent.parent
        for folder in reversed(self._parents):
            folder.mkdir(exist_ok=True)

    def _move_in(self, stage: Path, target: Target) -> None:
        if target.in_place:
            replace_files(stage, target.out)
            return
        if target.out.is_dir():
            with suppress(OSError):  # some file systems have no modes
                stage.chmod(target.out.stat().st_mode & 0o7777)
        try:
            replace_folder(stage, target.out, target.site.aside)
        except OSError as error:
            if error.errno not in _CANNOT_MOVE_WHOLE or not target.out.is_dir():
                raise
            self.notes.append(
                f"{self.out} was replaced file by file, which is not atomic: {error.strerror}"
            )
            replace_files(stage, target.out)

    def _copy_aside(self, stage: Path, names: Sequence[Path], target: Target) -> Path:
        new = beside(target.out).new("failed")
        new.mkdir()
        self._undo.callback(remove_tree, new)
        for name in names:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(stage / name, new / name)
        sync_tree(new)
        return new

    def _remove_made_parents(self) -> None:
        for folder in self._parents:
            with suppress(OSError):
                folder.rmdir()


def _explains(name: Path) -> bool:
    text = name.as_posix()
    return text.startswith(("report.", "reproducer/")) or text == "trace.jsonl"
