"""One face for `tensorrt` and `tensorrt_rtx`, which share their class names but not their features.

Runs in the build child only: importing either module costs more than 100 MiB. Differences are
asked of the module itself, never of its version.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any, BinaryIO, Protocol, TypeAlias

__all__ = ["EngineWriter", "Hooks", "Native", "TrtModule", "load_module"]

Native: TypeAlias = Any
"""An object of the native library; it has no Python types."""


class Hooks(Protocol):
    """Where the native library's callbacks go."""

    def log(self, severity: str, text: str) -> None:
        """One line of the builder's log."""
        ...

    def phase(self, name: str, steps: int) -> None:
        """A build phase begins."""
        ...

    def step(self, name: str, done: int) -> None:
        """A build phase advanced."""
        ...


class EngineWriter(Protocol):
    """What the stream writer knows when the build is over.

    Attributes:
        sha256: Of everything written so far.
        error: Why writing failed, if it did.
    """

    written: int
    error: OSError | None

    @property
    def sha256(self) -> str:
        """Hex digest of what was written."""
        ...


class TrtModule:
    """A loaded TensorRT module."""

    def __init__(self, module: Native) -> None:
        self.module = module
        self.version: str = str(module.__version__)

    @property
    def has_targets(self) -> bool:
        """Whether the GPUs that an engine runs on can be chosen."""
        return hasattr(self.module, "ComputeCapability")

    def logger(self, hooks: Hooks) -> Native:
        """Make the process's only logger; the library ignores a second one."""
        return _logger(self.module, hooks)

    def monitor(self, hooks: Hooks) -> Native:
        """Make a progress monitor."""
        return _monitor(self.module, hooks)

    def writer(self, file: BinaryIO) -> EngineWriter:
        """Make a sink for the engine that never holds it whole."""
        return _writer(self.module, file)

    def set_targets(self, config: Native, names: Sequence[str]) -> list[str]:
        """Choose the GPUs; returns the names that the module does not know."""
        members = self.module.ComputeCapability.__members__
        known = {str(name).lower(): member for name, member in members.items()}
        unknown = [name for name in names if name not in known]
        if names and not unknown:
            config.num_compute_capabilities = len(names)
            for index, name in enumerate(names):
                config.set_compute_capability(known[name], index)
        return unknown

    def require_fp32(self, config: Native) -> None:
        """Switch TF32 off, which is on by default: fp32 in a report must mean fp32."""
        if flag := getattr(self.module.BuilderFlag, "TF32", None):
            config.clear_flag(flag)


def load_module(name: str) -> TrtModule:
    """Import `tensorrt` or `tensorrt_rtx`.

    Raises:
        ImportError: It is not installed.
        OSError: One of its shared libraries is missing.
    """
    return TrtModule(importlib.import_module(name))


def _logger(trt: Native, hooks: Hooks) -> Native:
    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Native, message: str) -> None:
            hooks.log(str(severity).rpartition(".")[2], message)

    return Logger()


def _monitor(trt: Native, hooks: Hooks) -> Native:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            hooks.phase(name, steps)

        def step_complete(self, name: str, step: int) -> bool:
            hooks.step(name, step + 1)
            return True

        def phase_finish(self, name: str) -> None:
            pass

    return Monitor()


def _writer(trt: Native, file: BinaryIO) -> EngineWriter:
    class Writer(trt.IStreamWriter):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)
            self.written = 0
            self.error: OSError | None = None
            self._digest = hashlib.sha256()

        @property
        def sha256(self) -> str:
            return self._digest.hexdigest()

        def write(self, data: bytes) -> int:
            try:
                file.write(data)
            except OSError as error:  # an exception must not cross the native frame
                self.error = error
                return 0
            self._digest.update(data)
            self.written += len(data)
            return len(data)

    writer: EngineWriter = Writer()
    return writer
