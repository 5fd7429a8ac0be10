"""Integer grids of activations: from a range of real values to scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optcc.passkit.qtypes import ActivationRange

__all__ = ["Grid", "join", "signed_grid", "unsigned_grid"]

_SIGNED_MAX = 127
_UNSIGNED_STEPS = 255
_IDLE_BOUND = 1.0
_LEAST_SCALE = 1e-12


@dataclass(frozen=True, slots=True)
class Grid:
    """The real values `scale * (q - zero_point)` for all q of the integer type.

    Attributes:
        signed: int8 when true, else uint8.
    """

    scale: float
    zero_point: int
    signed: bool

    @property
    def scale_array(self) -> np.ndarray:
        """The scale as a float32 scalar tensor."""
        return np.array(self.scale, np.float32)

    @property
    def zero_point_array(self) -> np.ndarray:
        """The zero point as a scalar tensor of the integer type."""
        return np.array(self.zero_point, np.int8 if self.signed else np.uint8)

    @property
    def integer_bounds(self) -> tuple[int, int]:
        """Ends of the integer type."""
        return (-128, 127) if self.signed else (0, _UNSIGNED_STEPS)

    @property
    def low(self) -> float:
        """The least real value on the grid."""
        return self.scale * (self.integer_bounds[0] - self.zero_point)

    @property
    def high(self) -> float:
        """The greatest real value on the grid."""
        return self.scale * (self.integer_bounds[1] - self.zero_point)


def signed_grid(interval: ActivationRange) -> Grid:
    """Return the symmetric int8 grid that covers `interval`; the zero point is 0.

    A value that was zero on every sample gets the grid of -1..1: any finite positive scale is
    exact for it, and this one leaves room for a sample that wakes it up.
    """
    bound = max(abs(interval.low), abs(interval.high)) or _IDLE_BOUND
    return Grid(_representable(bound / _SIGNED_MAX), 0, signed=True)


def unsigned_grid(interval: ActivationRange) -> Grid:
    """Return the uint8 grid that covers `interval`; zero is always on the grid."""
    low, high = min(interval.low, 0.0), max(interval.high, 0.0)
    if low == high:
        high = _IDLE_BOUND
    scale = _representable((high - low) / _UNSIGNED_STEPS)
    zero_point = int(np.clip(np.rint(-low / scale), 0, _UNSIGNED_STEPS))
    return Grid(scale, zero_point, signed=False)


def _representable(scale: float) -> float:
    """Round to float32, kept away from zero: a scale must be positive and normal."""
    return float(np.float32(max(scale, _LEAST_SCALE)))


def join(intervals: list[ActivationRange]) -> ActivationRange:
    """Return the least interval that holds all of `intervals`."""
    if len(intervals) == 1:
        return intervals[0]
    low, high = min(r.low for r in intervals), max(r.high for r in intervals)
    return ActivationRange(low=low, high=high, method=intervals[0].method)
