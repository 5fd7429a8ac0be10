"""Round numbers to an integer grid and back, as a Q/DQ pair does."""

from __future__ import annotations

import numpy as np

from optcc.calibrate.observers import SIGNED_STEPS, UNSIGNED_STEPS, Scheme
from optcc.passkit.qtypes import ActivationRange, PerAxis, PerTensor

__all__ = ["rounded_activation", "rounded_weight"]

_LEAST_STEP = 1e-12


def rounded_activation(values: np.ndarray, interval: ActivationRange, scheme: Scheme) -> np.ndarray:
    """Return float32 `values` on the grid that covers `interval`."""
    if scheme is Scheme.SIGNED:
        step = max(-interval.low, interval.high) / SIGNED_STEPS
        least, most = -SIGNED_STEPS - 1, SIGNED_STEPS
    else:
        step = (interval.high - interval.low) / UNSIGNED_STEPS
        zero = round(-interval.low / step) if step > 0 else 0
        least, most = -zero, UNSIGNED_STEPS - zero
    if step <= 0:
        return values
    scale = np.float32(max(step, _LEAST_STEP))
    scaled = values / scale
    np.rint(scaled, out=scaled)
    np.clip(scaled, np.float32(least), np.float32(most), out=scaled)
    scaled *= scale
    return scaled


def rounded_weight(weight: np.ndarray, granularity: PerTensor | PerAxis) -> np.ndarray:
    """Return `weight` on the symmetric int8 grid, one scale per tensor or per channel."""
    axes: tuple[int, ...] | None = None
    if isinstance(granularity, PerAxis):
        kept = granularity.axis % weight.ndim
        axes = tuple(a for a in range(weight.ndim) if a != kept)
    bound = np.abs(weight).max(axis=axes, keepdims=True, initial=0.0)
    scale = np.where(bound > 0, bound, 1.0).astype(np.float32) / np.float32(SIGNED_STEPS)
    scale = np.maximum(scale, np.float32(_LEAST_STEP))
    return np.asarray(np.rint(weight / scale) * scale)
