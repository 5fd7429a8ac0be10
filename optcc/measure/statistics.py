"""Intervals and tests for paired measurements. All deterministic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["drop_interval", "mcnemar_p", "median_interval"]

_LEVEL = 0.95
_NORMAL_QUANTILE = 1.959963984540054
_STUDENT_QUANTILES = (12.706, 4.303, 3.182, 2.776)
"""Two-sided 95 % quantiles of Student's t for 1, 2, 3 and 4 degrees of freedom."""


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median of positive values.

    From six values on it is the sign test's interval: two of the sorted values, valid whatever the
    distribution. Fewer values cannot carry that, so a Student interval of their logarithms is
    taken, which is wide.

    Args:
        values: At least two, all above zero.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    if count < 2 or ordered[0] <= 0:
        raise ValueError("an interval needs at least two values above zero")
    if count < 6:
        return _student_interval(ordered)
    below = _largest_tail(count)
    return float(ordered[below]), float(ordered[count - 1 - below])


def mcnemar_p(only_first_right: int, only_second_right: int) -> float:
    """Return the exact two-sided p-value that two classifiers are equally often right.

    Args:
        only_first_right: Samples that the first gets right and the second does not.
        only_second_right: The reverse.
    """
    total = only_first_right + only_second_right
    if total == 0:
        return 1.0
    tail = _binomial_cdf(min(only_first_right, only_second_right), total)
    return min(1.0, 2 * tail)


def drop_interval(
    only_first_right: int, only_second_right: int, samples: int
) -> tuple[float, float]:
    """Return a 95 % interval of the paired drop of accuracy, in points.

    A Wald interval with half a sample added to each cell of the 2 x 2 table, which keeps its
    coverage when few samples differ.
    """
    b, c, n = only_first_right + 0.5, only_second_right + 0.5, samples + 2.0
    drop = (b - c) / n
    spread = math.sqrt(max(b + c - (b - c) ** 2 / n, 0.0)) / n
    low, high = drop - _NORMAL_QUANTILE * spread, drop + _NORMAL_QUANTILE * spread
    return 100 * max(low, -1.0), 100 * min(high, 1.0)


def _student_interval(ordered: np.ndarray) -> tuple[float, float]:
    logs = np.log(ordered)
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = _STUDENT_QUANTILES[len(logs) - 2] * error
    centre = float(logs.mean())
    return math.exp(centre - half), math.exp(centre + half)


def _largest_tail(count: int) -> int:
    """Return how many sorted values may be cut from each end and still cover 95 %."""
    below = 0
    while _binomial_cdf(below + 1, count) <= (1 - _LEVEL) / 2:
        below += 1
    return below


def _binomial_cdf(most: int, total: int) -> float:
    logs = [
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
        for k in range(most + 1)
    ]
    return math.fsum(math.exp(v - total * math.log(2)) for v in logs)
