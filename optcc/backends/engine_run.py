"""Runs a serialized engine on the CUDA device of this machine, in a child process.

The child loads the runtime and the driver, so that a crash in either costs one figure and not the
compile.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from optcc.backends.child import ChildEnd, Event, run_child
from optcc.backends.device import find_cuda_device
from optcc.errors import BackendError
from optcc.passkit.contract import Feed

__all__ = ["NO_DEVICE", "EngineRun", "can_run", "run_engine"]

NO_DEVICE = "no device"
"""Why nothing runs on a machine without a GPU."""

_WORKER = "optcc.backends.engine_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What an engine gave, and how long one run takes.

    The time is wall time from the launch of a run to its end on the device; inputs and outputs
    stay on the device.

    Attributes:
        outputs: Of each feed, in order.
        runs: Timed runs.
        warmup_runs: Runs before the clock started.
        version: Of the runtime.
    """

    outputs: list[Feed]
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int
    warmup_runs: int
    version: str = ""


def can_run(targets: Sequence[str]) -> str:
    """Say why an engine for these targets cannot run here; empty when it can."""
    device = find_cuda_device()
    if device is None:
        return NO_DEVICE
    if device.target in targets:
        return ""
    return (
        f"{device.name} ({device.target}) is not among the engine's targets: {', '.join(targets)}"
    )


def run_engine(
    engine: Path,
    sha256: str,
    backend: str,
    feeds: Iterable[Feed],
    seconds: float,
    *,
    timed: Sequence[Feed] = (),
) -> EngineRun:
    """Run every feed once, then time the engine.

    Args:
        engine: The serialized engine.
        sha256: What its file must have.
        backend: Its runtime: `tensorrt_rtx` or `tensorrt`.
        feeds: At least one; read once, and never all in memory.
        seconds: To spend on timing.
        timed: Feeds to time, in turn; without any, the first of `feeds`.

    Raises:
        BackendError: The file is another one, the runtime or the device fails, or the engine was
            not built for a feed.
    """
    _check_digest(engine, sha256)
    with tempfile.TemporaryDirectory(prefix="optcc-", ignore_cleanup_errors=True) as name:
        folder, talk = Path(name), _Talk()
        try:
            names, count = _write_feeds(folder, feeds, timed)
        except OSError as error:
            why = error.strerror or str(error)
            raise BackendError(f"samples cannot be handed to the engine: {why}") from error
        job: dict[str, object] = {
            "module": backend,
            "engine": str(engine.resolve()),
            "sha256": sha256,
            "inputs": names,
            "feeds": count,
            "timed": max(1, len(timed)),
            "seconds": seconds,
        }
        end = run_child(_WORKER, job, talk.hear, cwd=folder)
        if not talk.done:
            raise BackendError(_why(talk, end, backend), where=engine.name)
        return _result(folder, talk)


def _check_digest(engine: Path, sha256: str) -> None:
    try:
        with engine.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BackendError(
            f"the engine cannot be read: {error.strerror or error}", where=engine.name
        ) from error
    if found != sha256:
        raise BackendError(
            f"the engine's sha256 is {found[:12]}..., it was {sha256[:12]}... when it was built",
            where=engine.name,
        )


def _write_feeds(
    folder: Path, feeds: Iterable[Feed], timed: Sequence[Feed]
) -> tuple[list[str], int]:
    """Write numbered arrays, one file per feed; return the inputs' names and the count of feeds."""
    names: list[str] = []
    count = 0
    for count, feed in enumerate(feeds, start=1):
        names = names or sorted(feed)
        _write(folder / f"feed-{count - 1}.npz", feed, names)
        if count == 1 and not timed:
            _write(folder / "timed-0.npz", feed, names)
    if not count:
        raise BackendError("there is no sample to run the engine on")
    for index, feed in enumerate(timed):
        _write(folder / f"timed-{index}.npz", feed, names)
    return names, count


def _write(path: Path, feed: Feed, names: Sequence[str]) -> None:
    if sorted(feed) != list(names):
        raise BackendError(f"a sample has inputs {sorted(feed)}, the first one has {list(names)}")
    for name in names:
        if feed[name].dtype.kind in "OUS":
            raise BackendError(f"input {name!r} holds text, which no engine takes")
    np.savez(path, *(feed[name] for name in names))


@dataclass(slots=True)
class _Talk:
    """What the child said so far."""

    version: str = ""
    outputs: list[list[str]] = field(default_factory=list)
    times: Event = field(default_factory=dict)
    failure: str = ""
    done: bool = False

    def hear(self, event: Event) -> None:
        """Take one event."""
        match event["event"]:
            case "loaded":
                self.version = str(event["version"])
            case "ran":
                self.outputs.append([str(name) for name in event["names"]])
            case "timed":
                self.times = event
            case "failed":
                self.failure = str(event["text"])
            case "done":
                self.done = True


def _why(talk: _Talk, end: ChildEnd, backend: str) -> str:
    if talk.failure:
        return f"{backend}: {talk.failure}"
    how = f"signal {-end.status}" if end.status < 0 else f"exit status {end.status}"
    said = end.printed.strip().rpartition("\n")[2][:300]
    return f"the {backend} runtime crashed ({how})" + (f": {said}" if said else "")


def _result(folder: Path, talk: _Talk) -> EngineRun:
    return EngineRun(
        outputs=[_read(folder / f"outputs-{i}.npz", names) for i, names in enumerate(talk.outputs)],
        p50_ms=float(talk.times["p50_ms"]),
        p90_ms=float(talk.times["p90_ms"]),
        p99_ms=float(talk.times["p99_ms"]),
        runs=int(talk.times["runs"]),
        warmup_runs=int(talk.times["warmup_runs"]),
        version=talk.version,
    )


def _read(path: Path, names: Sequence[str]) -> Feed:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"arr_{index}"] for index, name in enumerate(names)}
