"""Latency of a loaded engine: wall time from the launch of a run to its end on the device.

Inputs and outputs stay on the device, so copies are not in it. The feeds take turns in blocks; the
first run of a block is not counted, because the runtime may look at the shapes again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from optcc.backends.cuda_driver import CudaDriver
from optcc.backends.engine_session import EngineSession

if TYPE_CHECKING:
    from optcc.passkit.contract import Feed

__all__ = ["EngineTimes", "time_engine"]

_WARMUP_SHARE = 0.2
_FEWEST_WARMUP_RUNS = 10
_FEWEST_RUNS = 20
_RUNS_PER_BLOCK = 16
_MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Latency of single runs in milliseconds.

    Attributes:
        runs: Timed runs.
        warmup_runs: Runs before them.
    """

    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int
    warmup_runs: int

    def facts(self) -> dict[str, float]:
        """Return the fields by name, for a message."""
        return asdict(self)


def time_engine(
    session: EngineSession,
    driver: CudaDriver,
    feeds: Sequence[Feed],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> EngineTimes:
    """Time runs of the feeds in turn.

    Args:
        session: The engine.
        driver: The one that the session uses.
        feeds: At least one; all of them are on the device at once.
        seconds: Time to spend, warm-up included; some runs are made in any case.
        clock: In seconds.

    Raises:
        EngineError: The engine fails.
        CudaError: The driver fails.
    """

    def run() -> float:
        begin = clock()
        session.enqueue()
        driver.synchronize()
        return clock() - begin

    start = clock()
    with ExitStack() as stack:
        placed = [stack.enter_context(session.placed(feed)) for feed in feeds]
        times: list[float] = []
        warmup_runs = blocks = 0
        was_on = gc.isenabled()
        gc.disable()
        stack.callback(gc.enable if was_on else gc.disable)
        while warmup_runs < _FEWEST_WARMUP_RUNS or clock() < start + seconds * _WARMUP_SHARE:
            session.point_to(placed[warmup_runs % len(placed)])
            run()
            warmup_runs += 1
        while len(times) < _FEWEST_RUNS or (clock() < start + seconds and len(times) < _MOST_RUNS):
            session.point_to(placed[blocks % len(placed)])
            run()
            times.extend(run() for _ in range(_RUNS_PER_BLOCK))
            blocks += 1
    p50, p90, p99 = (float(v) for v in np.percentile(np.asarray(times) * 1e3, (50, 90, 99)))
    return EngineTimes(p50, p90, p99, len(times), warmup_runs)
