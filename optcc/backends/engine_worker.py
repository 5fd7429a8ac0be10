"""The child process that runs one engine: `python -m optcc.backends.engine_worker`.

The first line of standard input is the job as JSON; each line of standard output is one event as
JSON. Feeds and outputs are npz files in the working folder, which goes when the parent is gone.
Imports neither onnx_ir nor onnxruntime.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optcc.backends.cuda_driver import CudaDriver, CudaError, open_driver
from optcc.backends.engine_session import EngineError, EngineSession
from optcc.backends.engine_timing import time_engine
from optcc.backends.trt_adapter import TrtModule, load_module
from optcc.backends.worker_channel import Channel, take_stdout, watch_parent

if TYPE_CHECKING:
    from optcc.passkit.contract import Feed

__all__ = ["main"]


def main() -> int:
    """Run what standard input asks for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    channel = Channel(take_stdout())
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    folder = Path.cwd()
    watch_parent(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        trt = load_module(job["module"])
        engine = _read_engine(Path(job["engine"]), job["sha256"])
        with open_driver() as driver:
            _serve(trt, engine, job, driver, channel)
    except (ImportError, OSError, CudaError, EngineError) as error:
        channel.send("failed", text=str(error))
        return 1
    return 0


def _read_engine(path: Path, sha256: str) -> bytes:
    """Read the file once: what was checked is what is loaded."""
    engine = path.read_bytes()
    if hashlib.sha256(engine).hexdigest() != sha256:
        raise EngineError("the engine's file changed while it was being opened")
    return engine


def _serve(
    trt: TrtModule, engine: bytes, job: dict[str, Any], driver: CudaDriver, channel: Channel
) -> None:
    session = EngineSession(trt, engine, driver, channel)
    channel.send("loaded", version=trt.version)
    for index in range(job["feeds"]):
        outputs = session.run(_read_feed(f"feed-{index}.npz", job["inputs"]))
        np.savez(f"outputs-{index}.npz", *outputs.values())
        channel.send("ran", index=index, names=list(outputs))
    timed = [_read_feed(f"timed-{index}.npz", job["inputs"]) for index in range(job["timed"])]
    if timed:
        channel.send("timed", **time_engine(session, driver, timed, job["seconds"]).facts())
    channel.send("done")


def _read_feed(path: str, names: list[str]) -> Feed:
    """Read arrays that are numbered in the file: a tensor's name need not fit a file."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[f"arr_{index}"] for index, name in enumerate(names)}


if __name__ == "__main__":
    raise SystemExit(main())
