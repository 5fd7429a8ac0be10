"""Integer grids of weights: symmetric, one scale per output channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["QuantizedWeight", "quantize_weight"]

_CLIPS = (1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.8)
"""Shares of max |w| that are tried; 8 bits seldom gain from a stronger clip."""

_LEAST_SCALE = 1e-12


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """`data * scale` along `axis` stands for the weight.

    Attributes:
        data: int8, same shape as the weight.
        scale: float32, one per channel, all positive.
    """

    data: np.ndarray
    scale: np.ndarray
    axis: int


def quantize_weight(
    weight: np.ndarray, axis: int, qmax: int, least_scale: np.ndarray | None = None
) -> QuantizedWeight:
    """Quantize `weight` per channel of `axis`.

    The scale of each channel is max |w| / qmax, or a clipped one where that makes the sum of
    squared weight errors smaller. A channel of zeros gets scale 1.

    Args:
        weight: float32.
        axis: The output-channel axis.
        qmax: Largest magnitude of the integers: 127, or 64 for 7-bit kernels.
        least_scale: Lower bounds of the scales per channel, or None.
    """
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    bound = np.abs(rows).max(axis=1, initial=0.0)
    bound = np.where(bound > 0, bound, np.float32(qmax)).astype(np.float32)
    scale = _best_scale(rows, bound / np.float32(qmax), qmax)
    if least_scale is not None:
        scale = np.maximum(scale, least_scale.astype(np.float32))
    data = _integers(rows, scale, qmax).astype(np.int8)
    shaped = data.reshape(np.moveaxis(weight, axis, 0).shape)
    return QuantizedWeight(np.ascontiguousarray(np.moveaxis(shaped, 0, axis)), scale, axis)


def _best_scale(rows: np.ndarray, full: np.ndarray, qmax: int) -> np.ndarray:
    full = np.maximum(full, np.float32(_LEAST_SCALE))
    best, least = full, np.full(len(rows), np.inf)
    for share in _CLIPS:
        scale = full * np.float32(share)
        error = ((_integers(rows, scale, qmax) * scale[:, None] - rows) ** 2).sum(axis=1)
        better = error < least
        best, least = np.where(better, scale, best), np.where(better, error, least)
    return best.astype(np.float32)


def _integers(rows: np.ndarray, scale: np.ndarray, qmax: int) -> np.ndarray:
    return np.asarray(np.clip(np.rint(rows / scale[:, None]), -qmax, qmax))
