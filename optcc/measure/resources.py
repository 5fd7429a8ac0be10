"""What a compile takes: time per stage, and the peak memory of all its processes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PeakMemory", "StageTimers"]

_PROC = Path("/proc")
_MIB = 1024 * 1024


class StageTimers:
    """Wall time by stage, in the order in which the stages first ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block; the same name adds up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            passed = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + passed

    @property
    def total_s(self) -> float:
        """Seconds since the timers were made."""
        return time.perf_counter() - self._started


class PeakMemory:
    """Samples the memory of this process and all its descendants, and keeps the largest sum.

    On Linux resident sizes are added up, so that pages which processes share count more than once:
    the figure is never too low by that. Elsewhere it is the largest resident size of this process
    alone, and `method` says so.
    Used as `with PeakMemory() as memory: ...; memory.peak_mib`.

    Args:
        interval_s: Between two samples.
    """

    def __init__(self, interval_s: float = 0.05) -> None:
        self._interval_s = interval_s
        self._peak_bytes = 0
        self._own_high_before = _own_high_water()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.method = "sum over the processes, sampled" if _has_proc() else "this process only"

    def __enter__(self) -> Self:
        if _has_proc():
            self._take()
            self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._take()

    @property
    def peak_mib(self) -> float:
        """The largest sum so far, in MiB."""
        own = _own_high_water()
        grown = own if own > self._own_high_before or not _has_proc() else 0
        return max(self._peak_bytes, grown) / _MIB

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._take()

    def _take(self) -> None:
        self._peak_bytes = max(self._peak_bytes, sum(map(_resident_bytes, _family())))


def _has_proc() -> bool:
    return sys.platform.startswith("linux") and (_PROC / "self" / "statm").exists()


def _family() -> list[int]:
    """Return this process and its descendants."""
    family, queue = [], [os.getpid()]
    while queue:
        process = queue.pop()
        family.append(process)
        queue += _children(process)
    return family


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(_PROC / str(process) / "task"):
            with suppress(OSError):
                text = (_PROC / str(process) / "task" / thread / "children").read_text()
                found += map(int, text.split())
    return found


def _resident_bytes(process: int) -> int:
    try:
        fields = (_PROC / str(process) / "statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def _own_high_water() -> int:
    """Return the largest resident size of this process so far, in bytes; 0 where unknown."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
