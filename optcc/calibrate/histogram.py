"""A histogram that grows with the data and gives the same counts for every order of arrival.

Bins are half-open, `width` is a power of two and zero lies on an edge. A value beyond the last edge
doubles the width by joining pairs of bins, so no count is ever spread or guessed:

    bin of x = floor(x / width),  -_SIDE <= bin < _SIDE
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Histogram"]

_SIDE = 4096
_SIDE_BITS = 12
_BLOCK = 1 << 16
_LEAST_EXPONENT = -100


class Histogram:
    """Counts of float32 values around zero, in bounded memory.

    Attributes:
        counts: int64, one per bin, negative bins first.
        exponent: The width of a bin is 2 ** exponent.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(2 * _SIDE, np.int64)
        self.exponent = _LEAST_EXPONENT

    @property
    def width(self) -> float:
        """Width of a bin."""
        return math.ldexp(1.0, self.exponent)

    def add(self, values: np.ndarray, bound: float) -> None:
        """Count flat, finite float32 `values`; `bound` is their largest magnitude."""
        self._grow(_exponent_for(bound))
        scale = np.float32(math.ldexp(1.0, -self.exponent))
        for start in range(0, values.size, _BLOCK):
            bins = np.floor(values[start : start + _BLOCK] * scale).astype(np.int32)
            bins += _SIDE
            self.counts += np.bincount(bins, minlength=2 * _SIDE)

    def _grow(self, exponent: int) -> None:
        if not self.counts.any():
            self.exponent = max(self.exponent, exponent)
        while self.exponent < exponent:
            joined = self.counts.reshape(_SIDE, 2).sum(axis=1)
            self.counts = np.zeros_like(self.counts)
            self.counts[_SIDE // 2 : _SIDE + _SIDE // 2] = joined
            self.exponent += 1

    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the centers [n] and counts [n] of the bins from the first filled to the last."""
        held = np.flatnonzero(self.counts)
        if held.size == 0:
            return np.zeros(0), np.zeros(0, np.int64)
        first, last = int(held[0]), int(held[-1]) + 1
        centers = (np.arange(first, last) - _SIDE + 0.5) * self.width
        return centers, self.counts[first:last]


def _exponent_for(bound: float) -> int:
    """Return the least exponent whose bins hold `bound` on either side of zero."""
    if bound == 0:
        return _LEAST_EXPONENT
    return max(math.frexp(bound)[1] - _SIDE_BITS, _LEAST_EXPONENT)
