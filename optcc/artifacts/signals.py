"""Signals while a folder is being written: clean up on SIGTERM, and no interruption half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from optcc.errors import ExitCode

__all__ = ["Terminated", "raise_on_termination", "uninterrupted"]

_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class Terminated(SystemExit):
    """The process was asked to end; carries exit code 143."""

    def __init__(self) -> None:
        super().__init__(int(ExitCode.TERMINATED))


def _ending_signals() -> list[signal.Signals]:
    names = ("SIGTERM", "SIGHUP")
    return [signal.Signals[n] for n in names if hasattr(signal, n)]


@contextmanager
def raise_on_termination() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Terminated`, so that clean-up code runs.

    A handler that somebody else installed stays. Outside the main thread nothing changes.
    """
    saved: dict[signal.Signals, _Handler] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ending_signals():
            if signal.getsignal(number) is signal.SIG_DFL:
                saved[number] = signal.signal(number, _raise_terminated)
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP back until the block is left; then let them act."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    saved = {
        number: signal.signal(number, lambda n, _: arrived.append(n))
        for number in (signal.SIGINT, *_ending_signals())
    }
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(arrived):
            signal.raise_signal(late)
