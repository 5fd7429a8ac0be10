"""Runs a Python module in a child process that cannot outlive its parent's interest in it.

The child stays in the parent's process group, so that whoever measures or ends the group includes
it; it ignores Ctrl-C, and the parent ends it on any exception. Should the parent be killed, the
child sees the end of its standard input.

Native builders order things by their addresses. So the child gets the same small environment,
hash seed and memory layout every time; nothing else makes their output reproducible.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import optcc

__all__ = ["ChildEnd", "Event", "run_child"]

Event = dict[str, Any]
"""One line from the child; `event` says which."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child ended.

    Attributes:
        status: Exit status; negative: the signal that ended it.
        printed: The end of what it printed outside its events.
        fixed_layout: Whether its memory layout was the same as in every other run.
    """

    status: int
    printed: str
    fixed_layout: bool


_TICK_S = 0.25
_TAIL_BYTES = 2000
_KEPT_VARIABLES = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONHOME",
    "SYSTEMROOT",
    "TEMP",
    "TMPDIR",
)
_FIXED_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    # Memory goes back to the thread that took it, not to the one that happens to free it.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
_NO_RANDOM_ADDRESSES = 0x0040000
_ASK_ONLY = 0xFFFFFFFF


def run_child(
    module: str,
    job: Mapping[str, object],
    on_event: Callable[[Event], None],
    *,
    cwd: Path,
    on_tick: Callable[[], None] = lambda: None,
) -> ChildEnd:
    """Run `python -m module` until it ends.

    Args:
        module: Dotted name; reads the job as one JSON line, writes events as JSON lines.
        job: JSON values. Paths in it should be relative to `cwd`: their length changes the layout.
        on_event: Called for each event, in the calling thread.
        cwd: Where the child runs.
        on_tick: Called while nothing comes, a few times a second.
    """
    with tempfile.TemporaryFile() as errors:
        with _fixed_addresses() as fixed:
            child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-W", "ignore", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                cwd=cwd,
            )
        try:
            _talk(child, job, on_event, on_tick)
            status = child.wait()
        finally:
            _end(child)
        return ChildEnd(status, _tail(errors), fixed)


def _talk(
    child: subprocess.Popen[bytes],
    job: Mapping[str, object],
    on_event: Callable[[Event], None],
    on_tick: Callable[[], None],
) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(child.stdout, events), daemon=True).start()
    try:
        child.stdin.write(json.dumps(job).encode("ascii") + b"\n")
        child.stdin.flush()
    except BrokenPipeError:
        return  # it ended at once; its exit status and output say why
    while True:
        try:
            line = events.get(timeout=_TICK_S)
        except queue.Empty:
            on_tick()
            continue
        if line is None:
            return
        on_event(json.loads(line))


def _read_lines(stream: IO[bytes], events: queue.SimpleQueue[bytes | None]) -> None:
    for line in stream:
        if line.endswith(b"\n"):  # a killed child may leave half a line
            events.put(line)
    events.put(None)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()


def _environment() -> dict[str, str]:
    """Let the child import this very package, wherever the parent took it from."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    root = str(Path(optcc.__file__).resolve().parents[1])
    return {**kept, **_FIXED_VARIABLES, "PYTHONPATH": root}


@contextmanager
def _fixed_addresses() -> Iterator[bool]:
    """Start children without random addresses, where the system is Linux and allows it."""
    if sys.platform != "linux":
        yield False
        return
    personality = ctypes.CDLL(None).personality
    before = personality(_ASK_ONLY)
    fixed = before >= 0 and personality(before | _NO_RANDOM_ADDRESSES) >= 0
    try:
        yield fixed
    finally:
        if fixed:
            personality(before)


def _tail(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _TAIL_BYTES))
    return errors.read().decode("utf-8", "replace").strip()
