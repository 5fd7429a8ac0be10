"""What the child processes of the backends share: the way to the parent, and an eye on it.

Standard input brings the job as one JSON line and then stays open; its end means that the parent
is gone. Standard output takes events, one JSON line each.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import IO

__all__ = ["Channel", "take_stdout", "watch_parent"]

_ERRORS = frozenset({"ERROR", "INTERNAL_ERROR"})
_NOT_FOR_TARGETS = "will not be able to run on target"
_ROOT_PHASE = "Building engine"
_LOG_LINES = 40


class Channel:
    """The way to the parent, and where the native library's callbacks end."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._steps: dict[str, int] = {}
        self.errors: list[str] = []

    def send(self, event: str, **facts: object) -> None:
        """Write one event."""
        with self._lock:
            self._file.write(json.dumps({"event": event, **facts}) + "\n")
            self._file.flush()

    def log(self, severity: str, text: str) -> None:
        """Keep errors, pass on the one warning that the library hides in its verbose log."""
        if severity in _ERRORS and len(self.errors) < _LOG_LINES:
            self.errors.append(text)
        elif _NOT_FOR_TARGETS in text:
            self.send("warning", text=text)

    def phase(self, name: str, steps: int) -> None:
        """Remember how long a phase is."""
        self._steps[name] = steps

    def step(self, name: str, done: int) -> None:
        """Pass on an advance of the build as a whole."""
        if name == _ROOT_PHASE:
            self.send("step", done=done, total=self._steps.get(name))


def take_stdout() -> IO[str]:
    """Keep standard output for events; what native code prints goes to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return events


def watch_parent(clean: Callable[[], None]) -> None:
    """Start the thread that ends this process when the parent is gone.

    Args:
        clean: Removes what this process wrote; called just before the end.
    """
    waiting = threading.Event()

    def watch() -> None:
        waiting.set()
        while os.read(0, 4096):
            pass
        clean()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    waiting.wait()
