"""From what was seen of a value to the interval that the integer grid shall cover.

Every observer answers for both grids: the signed symmetric one, whose steps are `bound / 127`, and
the unsigned one, whose steps are `(high - low) / 255`.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import numpy as np

from optcc.calibrate.observation import Observation
from optcc.config.request import Calibrator
from optcc.errors import ConfigError
from optcc.passkit.qtypes import ActivationRange

__all__ = [
    "ClipObserver",
    "EntropyObserver",
    "MinMaxObserver",
    "MseObserver",
    "Observer",
    "PercentileObserver",
    "Scheme",
    "clipping_error",
    "kept_by",
    "observer_for",
    "tail_clips",
]

SIGNED_STEPS = 127
UNSIGNED_STEPS = 255
_EDGES = 96
_BULK_SHARE = 0.9
_LONG_TAIL = 16.0
_MOST_HALVINGS = 10
_ENTROPY_BINS = 1024
_ENTROPY_CLIPS = 2.0 ** (-np.arange(25) / 5)


class Scheme(Enum):
    """The two integer grids."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"


class Observer(Protocol):
    """Chooses an interval. Zero always lies in it, and it never exceeds what was seen."""

    name: str

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the interval for one value."""
        ...


class MinMaxObserver:
    """Keeps everything that was seen."""

    name = "minmax"

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the extremes."""
        return _clipped(seen, -np.inf, np.inf, self.name)


class PercentileObserver:
    """Keeps a share of the magnitudes.

    Args:
        percentile: Share of |x| kept inside, in percent.
    """

    name = "percentile"

    def __init__(self, percentile: float = 99.99) -> None:
        if not 50 < percentile <= 100:
            raise ConfigError(f"percentile is {percentile}, it must be above 50 and at most 100")
        self.percentile = percentile

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the extremes, cut at the magnitude that keeps the share."""
        centers, counts = seen.histogram.filled()
        if centers.size == 0:
            return _clipped(seen, 0.0, 0.0, self.name)
        order = np.argsort(np.abs(centers), kind="stable")
        kept = np.cumsum(counts[order])
        index = int(np.searchsorted(kept, self.percentile / 100 * kept[-1]))
        nearest = abs(centers[order[min(index, kept.size - 1)]])
        bound = float(nearest + seen.histogram.width / 2)
        return _clipped(seen, -bound, bound, self.name)


class ClipObserver:
    """Keeps a share of the largest magnitude.

    Args:
        halvings: The share is 1 / 2 ** halvings.
    """

    name = "clip"

    def __init__(self, halvings: int) -> None:
        self._share = 2.0**-halvings

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the extremes, cut at that share."""
        bound = max(abs(seen.low), abs(seen.high)) * self._share
        return _clipped(seen, -bound, bound, self.name)


def tail_clips(seen: Observation) -> list[Observer]:
    """Return clips from the far end of a long tail down to the bulk; none for a short tail.

    A few channels far above the others may carry little weight in what reads the value. No
    observer sees that; trying the clips on the readers does.
    """
    largest = max(abs(seen.low), abs(seen.high))
    within = _bulk(seen)
    if within <= 0 or largest <= _LONG_TAIL * within:
        return []
    halvings = min(int(np.log2(largest / within)), _MOST_HALVINGS)
    return [ClipObserver(k) for k in range(1, halvings + 1)]


def _bulk(seen: Observation) -> float:
    """Return the magnitude that most of what is not zero stays below."""
    centers, counts = seen.histogram.filled()
    away = np.abs(centers) > seen.histogram.width
    if not away.any():
        return 0.0
    magnitudes, counts = np.abs(centers[away]), counts[away]
    order = np.argsort(magnitudes, kind="stable")
    kept = np.cumsum(counts[order])
    return float(magnitudes[order[np.searchsorted(kept, _BULK_SHARE * kept[-1])]])


class MseObserver:
    """Makes the expected squared error of the rounded and clipped value least."""

    name = "mse"

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the best of a fixed set of clips on each side."""
        centers, counts = seen.histogram.filled()
        if centers.size == 0:
            return _clipped(seen, 0.0, 0.0, self.name)
        if scheme is Scheme.SIGNED:
            bounds = _edges(max(abs(seen.low), abs(seen.high)))
            lows, highs, steps = -bounds, bounds, bounds / SIGNED_STEPS
        else:
            grid = np.meshgrid(-_edges(-seen.low), _edges(seen.high), indexing="ij")
            lows, highs = (side.ravel() for side in grid)
            steps = (highs - lows) / UNSIGNED_STEPS
        best = int(np.argmin(_squared_error(centers, counts, lows, highs, steps)))
        return _clipped(seen, float(lows[best]), float(highs[best]), self.name)


def _edges(bound: float) -> np.ndarray:
    """Return the clips to try on one side, the widest first; only 0 where nothing lies there."""
    if bound <= 0:
        return np.zeros(1)
    linear = np.linspace(1.0, 1 / 3, _EDGES // 2, endpoint=False)
    return bound * np.concatenate([linear, np.geomspace(1 / 3, 1 / 256, _EDGES // 2)])


def _squared_error(
    centers: np.ndarray,
    counts: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    steps: np.ndarray,
) -> np.ndarray:
    """Return, per candidate, clipping error plus rounding noise step^2 / 12 of what is inside.

    The bins at zero are free of noise: zero is a point of every grid.
    """
    weights = counts.astype(np.float64)
    powers = np.stack([weights, weights * centers, weights * centers**2])
    above = np.concatenate([np.cumsum(powers[:, ::-1], axis=1)[:, ::-1], np.zeros((3, 1))], axis=1)
    below = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)
    over = above[:, np.searchsorted(centers, highs, side="right")]
    under = below[:, np.searchsorted(centers, lows, side="left")]
    clip = _around(over, highs) + _around(under, lows)
    width = centers[1] - centers[0] if centers.size > 1 else 0.0
    at_zero = weights[np.abs(centers) < width].sum()
    noisy = np.maximum(weights.sum() - over[0] - under[0] - at_zero, 0.0)
    error: np.ndarray = clip + noisy * steps**2 / 12
    return error


def _around(sums: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return sum of w * (x - point)^2 from the sums of w, w x and w x^2."""
    spread = sums[2] - 2 * point * sums[1] + point**2 * sums[0]
    return np.asarray(np.maximum(spread, 0.0))


def clipping_error(seen: Observation, interval: ActivationRange, scheme: Scheme) -> float:
    """Return the mean squared distance of what was seen to what `interval` keeps."""
    centers, counts = seen.histogram.filled()
    low, high = kept_by(interval, scheme)
    excess = np.maximum(centers - high, 0.0) + np.maximum(low - centers, 0.0)
    half = seen.histogram.width / 2
    excess[excess <= half] = 0.0
    return float((counts * excess**2).sum() / max(int(counts.sum()), 1))


def kept_by(interval: ActivationRange, scheme: Scheme) -> tuple[float, float]:
    """Return the real values between which the grid of `scheme` clips nothing."""
    if scheme is Scheme.UNSIGNED:
        return interval.low, interval.high
    bound = max(-interval.low, interval.high)
    return -bound, bound


class EntropyObserver:
    """Makes the divergence between the distribution and its rounded, clipped image least."""

    name = "entropy"

    def choose(self, seen: Observation, scheme: Scheme) -> ActivationRange:
        """Return the best of a fixed set of clips, applied to both sides alike."""
        centers, counts = _coarse(*seen.histogram.filled())
        if centers.size == 0:
            return _clipped(seen, 0.0, 0.0, self.name)
        low, high = min(seen.low, 0.0), max(seen.high, 0.0)
        bound = max(-low, high)
        divergences = []
        for clip in _ENTROPY_CLIPS:
            cut_low, cut_high = max(low, -bound * clip), min(high, bound * clip)
            signed = scheme is Scheme.SIGNED
            step = bound * clip / SIGNED_STEPS if signed else (cut_high - cut_low) / UNSIGNED_STEPS
            divergences.append(_divergence(centers, counts, cut_low, cut_high, step))
        bound *= float(_ENTROPY_CLIPS[int(np.argmin(divergences))])
        return _clipped(seen, -bound, bound, self.name)


def _coarse(centers: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join neighbouring bins until few are left, and leave out the spike at zero.

    Zero is exact on every grid, so how often it occurs says nothing about the clip.
    """
    if centers.size < 2:
        return np.zeros(0), np.zeros(0)
    weights = np.where(np.abs(centers) < centers[1] - centers[0], 0, counts).astype(np.float64)
    joined = -(-centers.size // _ENTROPY_BINS)
    padding = -centers.size % joined
    width = centers[1] - centers[0]
    more = centers[-1] + width * np.arange(1, padding + 1)
    centers = np.concatenate([centers, more]).reshape(-1, joined).mean(axis=1)
    weights = np.concatenate([weights, np.zeros(padding)]).reshape(-1, joined).sum(axis=1)
    return centers, weights


def _divergence(
    centers: np.ndarray, weights: np.ndarray, low: float, high: float, step: float
) -> float:
    """Return KL(P || Q): P clipped to [low, high], Q what is inside spread evenly over each step.

    P carries the clipped mass on its last bins and Q does not, which is the price of clipping.
    """
    first, last = np.searchsorted(centers, low), np.searchsorted(centers, high, side="right")
    inside = weights[first:last]
    total = float(weights.sum())
    if inside.size == 0 or step <= 0 or not inside.any():
        return np.inf
    clipped = inside.copy()
    clipped[0] += weights[:first].sum()
    clipped[-1] += weights[last:].sum()
    level = np.rint(centers[first:last] / step).astype(np.int64)
    level -= level[0]
    held = inside > 0
    sums, filled = np.bincount(level, inside), np.bincount(level, held)
    spread = np.where(held, sums[level] / np.maximum(filled[level], 1), 0.0)
    p, q = clipped / total, spread / float(inside.sum())
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(q[some], 1e-9))).sum())


def _clipped(seen: Observation, low: float, high: float, method: str) -> ActivationRange:
    """Return the interval cut to what was seen, with zero in it."""
    return ActivationRange(
        low=min(max(seen.low, low), 0.0), high=max(min(seen.high, high), 0.0), method=method
    )


def observer_for(method: Calibrator) -> Observer:
    """Return the observer of a fixed method; AUTO is a choice among them and has none."""
    observers: dict[Calibrator, Observer] = {
        Calibrator.MINMAX: MinMaxObserver(),
        Calibrator.PERCENTILE: PercentileObserver(),
        Calibrator.ENTROPY: EntropyObserver(),
        Calibrator.MSE: MseObserver(),
    }
    return observers[method]
