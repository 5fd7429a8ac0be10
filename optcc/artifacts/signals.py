"""Signals while a folder is being written: clean up on SIGTERM, and no interruption half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from optcc.errors import ExitCode

__all__ = ["Terminated", "first_signal_raises", "uninterrupted"]

_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class Terminated(SystemExit):
    """The process was asked to end; carries exit code 143."""

    def __init__(self) -> None:
        super().__init__(int(ExitCode.TERMINATED))


def _ending_signals() -> list[signal.Signals]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return [signal.Signals[n] for n in names if hasattr(signal, n)]


class _First:
    """Lets the first signal raise and drops later ones, so that clean-up code is left alone."""

    def __init__(self) -> None:
        self._previous: dict[int, _Handler] = {}
        self._raised = False

    def install(self) -> None:
        """Take over every ending signal that is not ignored or handled outside Python."""
        for number in _ending_signals():
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._previous[number] = signal.signal(number, self._receive)

    def restore(self) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._raised:
            return
        self._raised = True
        previous = self._previous[number]
        if not callable(previous):
            raise Terminated
        previous(number, frame)
        self._raised = False  # somebody's handler only took note


@contextmanager
def first_signal_raises() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Terminated`, and only the first of all ending signals count.

    Handlers that somebody else installed are called in their place. Outside the main thread
    nothing changes.
    """
    first = _First()
    if threading.current_thread() is threading.main_thread():
        first.install()
    try:
        yield
    finally:
        first.restore()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP back until the block is left; then let them act."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    saved = {
        number: signal.signal(number, lambda n, _: arrived.append(n))
        for number in _ending_signals()
        if signal.getsignal(number) is not None
    }
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(arrived):
            signal.raise_signal(late)
