"""What calibration saw of each value: extremes, counts and a histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optcc.calibrate.histogram import Histogram

__all__ = ["Observation", "Observations"]

_COUNTED = 1 << 16
"""Elements of one array that go into the histogram; its extremes are exact all the same."""


@dataclass(slots=True)
class Observation:
    """Running record of one value; its size does not depend on how much it has seen.

    Attributes:
        low: Least finite value seen.
        high: Largest finite value seen.
        count: Finite elements seen.
        non_finite: Elements that were NaN or Inf; they are left out of everything else.
    """

    low: float = 0.0
    high: float = 0.0
    count: int = 0
    non_finite: int = 0
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, array: np.ndarray) -> None:
        """Take in one array of any shape and numeric type."""
        values = _flat(array)
        if values.size == 0:
            return
        with np.errstate(invalid="ignore"):
            low, high = float(values.min()), float(values.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = values[np.isfinite(values)]
            self.non_finite += values.size - finite.size
            if finite.size == 0:
                return
            values, low, high = finite, float(finite.min()), float(finite.max())
        self.low = min(self.low, low) if self.count else low
        self.high = max(self.high, high) if self.count else high
        self.count += values.size
        self.histogram.add(_spread(values), max(abs(low), abs(high)))


def _flat(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32).reshape(-1)


def _spread(values: np.ndarray) -> np.ndarray:
    """Take about `_COUNTED` elements at an even stride.

    The stride shares no factor with the size, so it passes through all channels, rows and columns
    alike, whatever the layout.
    """
    stride = max(1, values.size // _COUNTED)
    while math.gcd(stride, values.size) != 1:
        stride += 1
    return values[::stride]


@dataclass(frozen=True, slots=True)
class Observations:
    """All observed values of one model.

    Attributes:
        values: By value name.
        samples: How many samples were run.
    """

    values: Mapping[str, Observation]
    samples: int
