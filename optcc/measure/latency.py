"""Latency of an artifact against the original, fair under noise.

Both run in one process, in short alternating blocks; each pair of neighbouring blocks gives one
ratio. A disturbance that lasts longer than a block hits both sides, one that is shorter hits single
pairs, and the median of the ratios with its distribution-free interval shrugs those off. Which side
goes first is drawn for every other pair and reversed in the next, so that a drift favours nobody.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optcc.measure.statistics import median_interval
from optcc.passkit.contract import Feed
from optcc.runtime.session import OptimizationLevel, Session

__all__ = ["LatencyFigures", "Quantiles", "Ratio", "compare_calls", "compare_latency"]

_LONGEST_S = 4.0
_WARMUP_SHARE = 0.1
_MOST_WARMUP_RUNS = 20
_BLOCK_S = 0.008
_MOST_RUNS_PER_BLOCK = 64
_REFRESH_BELOW_S = 0.05
_FEWEST_PAIRS = 2
_WANTED_PAIRS = 12


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Latency of single runs in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Original time over artifact time; above 1 means faster."""

    median: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFigures:
    """Result of one comparison.

    Attributes:
        warmup_runs: Runs of each side before the clock started.
        runs: Timed runs of each side.
        pairs: Pairs of blocks, each of which gave one ratio.
        measured_s: What the comparison took, warm-up included.
    """

    threads: int
    warmup_runs: int
    runs: int
    pairs: int
    original: Quantiles
    optimized: Quantiles
    speedup: Ratio
    measured_s: float


def compare_latency(
    original: Path | bytes,
    optimized: Path | bytes,
    feeds: Sequence[Feed],
    *,
    threads: int = 1,
    seconds: float = 1.5,
    seed: int = 0,
) -> LatencyFigures:
    """Time two models in ONNX Runtime with all of its optimizations on.

    Args:
        original: Model file or serialized model; a file is needed for external data.
        optimized: The same of the artifact.
        feeds: Inputs, used in turn; both sides of a pair get the same one.
        threads: Intra-op threads of both sessions.
        seconds: Time to spend. Slow models get fewer runs and up to 4 s; below two pairs of runs
            nothing can be said, so a model above about 1 s per run takes longer.
        seed: Of the order of the two sides.

    Raises:
        BackendError: The runtime refuses a model or fails on the feeds.
    """
    sides = [
        Session(source, level=OptimizationLevel.ALL, threads=threads)
        for source in (original, optimized)
    ]
    calls = [_call(session) for session in sides]
    return compare_calls(calls[0], calls[1], feeds, threads=threads, seconds=seconds, seed=seed)


def compare_calls(
    original: Callable[[Feed], object],
    optimized: Callable[[Feed], object],
    feeds: Sequence[Feed],
    *,
    threads: int = 1,
    seconds: float = 1.5,
    seed: int = 0,
) -> LatencyFigures:
    """Time two callables; `compare_latency` says how and what the arguments mean."""
    if not feeds:
        raise ValueError("latency needs at least one feed")
    started = time.perf_counter()
    calls = (original, optimized)
    with _no_garbage_collection():
        warmup_runs, typical = _warm_up(calls, feeds, seconds)
        left = seconds - (time.perf_counter() - started)
        plan = _plan(typical, left, _LONGEST_S - (time.perf_counter() - started))
        times = _run_pairs(calls, feeds, plan, np.random.default_rng(seed), started + seconds)
    ratios = [float(np.median(a) / np.median(b)) for a, b in zip(*times, strict=True)]
    return LatencyFigures(
        threads=threads,
        warmup_runs=warmup_runs,
        runs=sum(map(len, times[0])),
        pairs=len(ratios),
        original=_quantiles(times[0]),
        optimized=_quantiles(times[1]),
        speedup=Ratio(float(np.median(ratios)), median_interval(ratios)),
        measured_s=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to spend the time.

    Attributes:
        runs: Timed runs per block.
        refresh: Whether one untimed run opens each block, so that the other model's weights have
            left the caches, as they would in a program that runs one model only.
        fewest: Pairs to run even when the time is over.
    """

    runs: int
    refresh: bool
    fewest: int


def _call(session: Session) -> Callable[[Feed], object]:
    def run(feed: Feed) -> object:
        return session.run(feed)

    return run


def _warm_up(
    calls: Sequence[Callable[[Feed], object]], feeds: Sequence[Feed], seconds: float
) -> tuple[int, float]:
    """Run both sides; return the runs of each and the time of one pair of runs."""
    deadline = time.perf_counter() + seconds * _WARMUP_SHARE
    runs, typical = 0, math.inf
    while runs == 0 or (runs < _MOST_WARMUP_RUNS and time.perf_counter() < deadline):
        feed = feeds[runs % len(feeds)]
        typical = min(typical, sum(_timed(call, feed) for call in calls))
        runs += 1
    return runs, typical


def _plan(pair_s: float, left_s: float, most_s: float) -> _Plan:
    slower = max(pair_s / 2, 1e-7)
    runs = max(1, min(_MOST_RUNS_PER_BLOCK, round(_BLOCK_S / slower)))
    refresh = slower < _REFRESH_BELOW_S
    per_pair = pair_s * (runs + refresh)
    affordable = int(max(left_s, most_s) / per_pair)
    return _Plan(runs, refresh, max(_FEWEST_PAIRS, min(_WANTED_PAIRS, affordable)))


def _run_pairs(
    calls: Sequence[Callable[[Feed], object]],
    feeds: Sequence[Feed],
    plan: _Plan,
    rng: np.random.Generator,
    deadline: float,
) -> tuple[list[list[float]], list[list[float]]]:
    times: tuple[list[list[float]], list[list[float]]] = ([], [])
    first = 0
    while len(times[0]) < plan.fewest or time.perf_counter() < deadline:
        pair = len(times[0])
        feed = feeds[pair % len(feeds)]
        first = 1 - first if pair % 2 else int(rng.integers(2))
        for side in (first, 1 - first):
            times[side].append(list(_block(calls[side], feed, plan)))
    return times


def _block(call: Callable[[Feed], object], feed: Feed, plan: _Plan) -> Iterator[float]:
    if plan.refresh:
        call(feed)
    for _ in range(plan.runs):
        yield _timed(call, feed)


def _timed(call: Callable[[Feed], object], feed: Feed) -> float:
    started = time.perf_counter()
    call(feed)
    return time.perf_counter() - started


def _quantiles(blocks: Sequence[Sequence[float]]) -> Quantiles:
    runs = np.concatenate([np.asarray(b) for b in blocks]) * 1e3
    p50, p90, p99 = (float(v) for v in np.percentile(runs, (50, 90, 99)))
    return Quantiles(p50, p90, p99)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
