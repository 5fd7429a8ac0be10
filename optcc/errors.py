"""Errors that the command line prints without a traceback, and the exit codes they map to."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BackendError",
    "ConfigError",
    "ExitCode",
    "OptccError",
    "UnsupportedModelError",
    "VerificationError",
    "WriteError",
]


class ExitCode(IntEnum):
    """Exit codes of every command; they never depend on how far the work got."""

    DONE = 0
    BUG = 1
    CONFIG = 2
    MODEL = 3
    VERIFICATION = 4
    BACKEND = 5
    WRITE = 6
    INTERRUPTED = 130
    TERMINATED = 143


class OptccError(Exception):
    """Base of every error that the CLI prints without a traceback.

    Attributes:
        what: One sentence that holds the wrong value.
        hint: A command or option that mends it.
        where: Node, tensor, file or configuration key.
    """

    exit_code: ExitCode = ExitCode.BUG

    def __init__(self, what: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where


class ConfigError(OptccError):
    """Options, configuration or data are wrong, or an extra is missing."""

    exit_code = ExitCode.CONFIG


class UnsupportedModelError(OptccError):
    """The model is malformed, unsafe or not supported."""

    exit_code = ExitCode.MODEL


class VerificationError(OptccError):
    """A pass broke its promise, or a gate failed."""

    exit_code = ExitCode.VERIFICATION


class BackendError(OptccError):
    """A backend could not build or run what it was given."""

    exit_code = ExitCode.BACKEND


class WriteError(OptccError):
    """The output cannot be written: disk full, permissions, locked."""

    exit_code = ExitCode.WRITE
