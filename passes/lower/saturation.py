"""Weight scales at which no int8 kernel of a CPU saturates.

x86 processors without VNNI multiply uint8 by int8 with an instruction that adds the products of
two neighbours along the reduction axis in 16 bits. With activations up to 255, two neighbouring
weights of one sign overflow it when the sum of their magnitudes exceeds 32767 / 255 = 128. Halving
the range of all weights avoids that and costs a bit everywhere; here a channel's scale grows only
as far as its own neighbours need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["MOST_SUM", "keeps_pairs", "least_safe_scale", "partners"]

MOST_SUM = 128
"""What the magnitudes of two neighbouring integers of one sign may add up to."""

_MOST_SUM = 127
"""128, less what rounding two weights to integers may add."""


def least_safe_scale(weight: np.ndarray, axis: int) -> np.ndarray:
    """Return per channel of `axis` the least scale that keeps every pair of products exact.

    Args:
        weight: Of a convolution, [out, in / group, *kernel], or a matrix. A convolution kernel
            has either the kernel positions or the input channels innermost, so both orders count.
        axis: The output-channel axis.
    """
    return np.asarray(_largest_sums(weight, axis) / _MOST_SUM)


def keeps_pairs(data: np.ndarray, axis: int) -> bool:
    """Tell whether no pair of products of the integers `data` leaves 16 bits."""
    return bool(np.all(_largest_sums(data.astype(np.int32), axis) <= MOST_SUM))


def partners(dims: Sequence[int]) -> list[list[int]]:
    """Return for each input of a sum those whose products are added to its own in 16 bits.

    Args:
        dims: Of the weight without its channel axis: [in / group, *kernel], or [inputs].
    """
    places = np.arange(math.prod(dims)).reshape(1, *dims)
    found: list[set[int]] = [set() for _ in range(places.size)]
    for order in _orders(places):
        for first, second in order[0, : places.size // 2 * 2].reshape(-1, 2).tolist():
            found[first].add(second)
            found[second].add(first)
    return [sorted(own) for own in found]


def _largest_sums(weight: np.ndarray, axis: int) -> np.ndarray:
    rows = np.moveaxis(weight, axis, 0)
    return np.asarray(np.max([_largest_pair(order) for order in _orders(rows)], axis=0))


def _orders(rows: np.ndarray) -> list[np.ndarray]:
    """Return [channels, in / group, *kernel] as rows, in each order that a kernel may read."""
    orders = [rows.reshape(len(rows), -1)]
    if rows.ndim > 2:
        orders.append(np.moveaxis(rows, 1, -1).reshape(len(rows), -1))
    return orders


def _largest_pair(rows: np.ndarray) -> np.ndarray:
    """Return per row the largest magnitude that two neighbours of one sign add up to."""
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    pairs = rows.reshape(len(rows), -1, 2)
    up = np.maximum(pairs, 0).sum(axis=2).max(axis=1, initial=0.0)
    down = np.minimum(pairs, 0).sum(axis=2).min(axis=1, initial=0.0)
    return np.asarray(np.maximum(up, -down))
