"""The child process that builds one engine: `python -m optcc.backends.trt_worker`.

The first line of standard input is the job as JSON; each line of standard output is one event as
JSON. End of input means that the parent is gone: the child then removes what it began and ends.
Imports neither onnx_ir nor onnxruntime, so that the two processes together stay small.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from optcc.backends.trt_adapter import TrtModule, load_module
from optcc.backends.worker_channel import Channel, take_stdout, watch_parent

__all__ = ["main"]


def main() -> int:
    """Build what standard input asks for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; the library swallows it
    channel = Channel(take_stdout())
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    out = Path(job["out"])
    watch_parent(lambda: out.unlink(missing_ok=True))
    try:
        trt = load_module(job["module"])
    except (ImportError, OSError) as error:
        channel.send("failed", stage="import", log=[str(error)])
        return 1
    channel.send("loaded", version=trt.version)
    return 0 if job["probe"] or _build_apart(trt, job, channel) else 1


def _run_threads_in_turn() -> None:
    """Keep the builder's short helper threads from overtaking each other, where Linux lets us.

    They do next to nothing, but the order in which they take memory decides names in the engine.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it; only the bytes depend on it
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _build_apart(trt: TrtModule, job: dict[str, Any], channel: Channel) -> bool:
    """Build in a fresh thread, which has a heap of its own.

    The builder orders some things by their addresses. In the main thread these would depend on
    what Python allocated before: on path lengths, on the files in the folders it imports from.
    """
    _run_threads_in_turn()
    results: list[bool] = []

    def build() -> None:
        results.append(EngineBuild(trt, job, channel).run())

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    return results == [True]


class EngineBuild:
    """One build; holds what the native library needs alive until it ends."""

    def __init__(self, trt: TrtModule, job: dict[str, Any], channel: Channel) -> None:
        self._begin = time.monotonic()
        self._trt, self._job, self._channel = trt, job, channel
        logger = trt.logger(channel)
        self._builder = trt.module.Builder(logger)
        self._network = self._builder.create_network(0)
        self._parser = trt.module.OnnxParser(self._network, logger)
        self._config = self._builder.create_builder_config()

    def run(self) -> bool:
        """Parse, configure, build and write; failures are sent, not raised."""
        if not self._parser.parse_from_file(self._job["model"]):
            return self._fail("parse", errors=self._parser_errors())
        self._config.progress_monitor = self._trt.monitor(self._channel)
        self._trt.require_fp32(self._config)
        if problem := self._set_targets() or self._set_profile():
            return self._fail("profile", log=[problem])
        return self._write()

    def _fail(self, stage: str, **facts: object) -> bool:
        self._channel.send("failed", **{"stage": stage, "log": self._channel.errors, **facts})
        return False

    def _parser_errors(self) -> list[dict[str, object]]:
        found = [self._parser.get_error(i) for i in range(self._parser.num_errors)]
        return [
            {
                "code": str(error.code()).rpartition(".")[2],
                "text": error.desc(),
                "op": error.node_operator(),
                "node": error.node_name(),
            }
            for error in found
        ]

    def _set_targets(self) -> str:
        if not self._job["targets"] or not self._trt.has_targets:
            return ""
        unknown = self._trt.set_targets(self._config, self._job["targets"])
        what = f"{self._job['module']} {self._trt.version} cannot build for"
        return f"{what} {', '.join(unknown)}" if unknown else ""

    def _set_profile(self) -> str:
        shapes = {entry["name"]: entry for entry in self._job["profile"]}
        profile = self._builder.create_optimization_profile()
        used = False
        for tensor in map(self._network.get_input, range(self._network.num_inputs)):
            if tensor.is_shape_tensor:
                return f"input {tensor.name!r} holds a shape; its values would have to be known"
            if -1 not in tuple(tensor.shape):
                continue
            entry = shapes.get(tensor.name)
            if entry is None:
                return f"input {tensor.name!r} is dynamic and no shapes are given for it"
            try:
                profile.set_shape(tensor.name, entry["min"], entry["opt"], entry["max"])
            except RuntimeError as error:
                return f"input {tensor.name!r} cannot have the given shapes: {error}"
            used = True
        if used and not profile:
            return "the given shapes are not ordered: every dimension needs min <= opt <= max"
        if used:
            self._config.add_optimization_profile(profile)
        return ""

    def _write(self) -> bool:
        try:
            with Path(self._job["out"]).open("wb") as file:
                writer = self._trt.writer(file)
                built = self._builder.build_serialized_network_to_stream(
                    self._network, self._config, writer
                )
                if writer.error is not None:
                    raise writer.error
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return self._fail("write", log=[error.strerror or str(error)])
        if not built:
            return self._fail("build")
        self._channel.send(
            "built",
            sha256=writer.sha256,
            bytes=writer.written,
            build_s=round(time.monotonic() - self._begin, 3),
        )
        return True


if __name__ == "__main__":
    raise SystemExit(main())
