"""What a person sees: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

from optcc.errors import OptccError

__all__ = [
    "LiveLine",
    "Warnings",
    "error",
    "flush",
    "make_progress",
    "out",
    "printable",
    "status",
    "warn",
]

_REDRAW_S = 0.1


def out(text: str) -> None:
    """Write a result to stdout; a reader who has gone is no error."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    except BrokenPipeError:
        _discard_stdout()


def flush() -> None:
    """Write out what is buffered, before the interpreter does it and complains."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Let everything that is still written to stdout vanish."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def status(text: str) -> None:
    """Write one line about the work to stderr."""
    sys.stderr.write(printable(text) + "\n")


def warn(text: str) -> None:
    """Write a warning to stderr."""
    status(f"warning: {text}")


def error(problem: OptccError) -> None:
    """Write what went wrong, where, and what mends it, to stderr."""
    where = f" ({problem.where})" if problem.where else ""
    status(f"error: {problem.what}{where}")
    if problem.hint:
        status(f"hint: {problem.hint}")


def printable(text: str) -> str:
    """Return `text` with control characters spelled out: names in a model are not to be trusted."""
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)


def make_progress() -> LiveLine | Warnings:
    """Return a live line on a terminal, else a progress that prints warnings only."""
    return LiveLine(sys.stderr) if sys.stderr.isatty() else Warnings()


class Warnings:
    """A `Progress` for logs: warnings appear, progress does not."""

    def stage(self, name: str) -> None:
        """Drop it."""

    def step(self, done: int, total: int | None = None) -> None:
        """Drop it."""

    def warn(self, text: str) -> None:
        """Print it."""
        warn(text)

    def close(self) -> None:
        """Nothing to erase."""


class LiveLine:
    """A `Progress` that redraws one line of a terminal and leaves nothing behind."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""
        self._drawn = 0.0
        self._began = time.monotonic()

    def stage(self, name: str) -> None:
        """Show the stage at once."""
        self._stage = name
        self._draw(name)

    def step(self, done: int, total: int | None = None) -> None:
        """Show how far the stage is, a few times a second."""
        if time.monotonic() - self._drawn >= _REDRAW_S:
            share = f"{done}/{total}" if total else str(done)
            self._draw(f"{self._stage}  {share}")

    def warn(self, text: str) -> None:
        """Print the warning above the line."""
        self.close()
        warn(text)

    def close(self) -> None:
        """Erase the line."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()

    def _draw(self, text: str) -> None:
        self._drawn = time.monotonic()
        columns = shutil.get_terminal_size().columns
        line = f"[{self._drawn - self._began:5.1f} s] {printable(text)}"
        self._stream.write(f"\r\x1b[K{line[: columns - 1]}")
        self._stream.flush()
