"""Choose integers one input after the other, for all channels at once.

Everything here is in steps of the grid: exact weights are w / s. Layout and mathematics are those
of `second_order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Limits", "error_of", "refined", "stepwise"]

_BLOCK = 32
"""Inputs between two products of full length; within a block the sums are short."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the integers must keep to.

    Attributes:
        qmax: Their largest magnitude.
        partners: Per input those whose products are added to its own in 16 bits.
        most_sum: What the magnitudes of two partners of one sign may add up to.
    """

    qmax: int
    partners: Sequence[Sequence[int]]
    most_sum: int

    def in_order(self, order: np.ndarray) -> Limits:
        """Return the limits of inputs that are sorted into `order`."""
        place = np.argsort(order).tolist()
        moved = [[place[p] for p in self.partners[i]] for i in order.tolist()]
        return Limits(self.qmax, moved, self.most_sum)

    def clip(self, target: np.ndarray, integers: np.ndarray, index: int) -> np.ndarray:
        """Round `target` [groups, channels] to what input `index` may be beside its partners."""
        high, low = np.float32(self.qmax), np.float32(-self.qmax)
        for partner in self.partners[index]:
            beside = integers[:, partner]
            high = np.minimum(high, self.most_sum - np.maximum(beside, 0))
            low = np.maximum(low, -self.most_sum - np.minimum(beside, 0))
        return np.asarray(np.minimum(np.maximum(np.rint(target), low), high))

    def share(self, target: np.ndarray, exact: np.ndarray, index: int) -> np.ndarray:
        """Give up half of what a pair is too large by, when its other half is still to come."""
        for partner in self.partners[index]:
            if partner < index:
                continue
            beside = exact[:, partner] * np.sign(target)
            over = np.abs(target) + beside - self.most_sum
            if np.any(over > 0):
                cut = np.where(beside > 0, np.clip(over / 2, 0, np.abs(target)), 0)
                target = target - np.sign(target) * cut
        return target


def error_of(left: np.ndarray, scale: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Return d^T H d.

    Args:
        left: d in steps of `scale`, float32 [groups, inputs, channels].
        scale: float32 [groups, channels].
        moment: H, float32 [groups, inputs, inputs].
    """
    return np.asarray((left * (moment @ left)).sum(axis=1) * scale**2)


def stepwise(
    exact: np.ndarray, factor: np.ndarray, pivots: np.ndarray, limits: Limits
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the integers in order, each for the errors before it.

    Args:
        exact: float32 [groups, inputs, channels].
        factor: A^T by rows, each divided by its diagonal element.
        pivots: The squares of those elements, float32 [groups, inputs].
        limits: Of the integers.

    Returns:
        The integers, and d^T H d in squared steps [groups, channels].
    """
    integers, left = np.zeros_like(exact), np.zeros_like(exact)
    error = np.zeros(exact.shape[::2], np.float32)
    for start, stop in _blocks(exact.shape[1]):
        before = factor[:, start:stop, :start] @ left[:, :start]
        for i in range(start, stop):
            own = _short_sum(factor[:, i, start:i], left[:, start:i])
            target = exact[:, i] + before[:, i - start] + own
            integers[:, i] = limits.clip(limits.share(target, exact, i), integers, i)
            left[:, i] = exact[:, i] - integers[:, i]
            error += pivots[:, i : i + 1] * (target - integers[:, i]) ** 2
    return integers, error


def refined(
    exact: np.ndarray, integers: np.ndarray, moment: np.ndarray, limits: Limits, sweeps: int
) -> np.ndarray:
    """Move single integers to where d^T H d is least with all others as they are."""
    integers = integers.copy()
    pull = moment @ (exact - integers)
    diagonal = np.diagonal(moment, axis1=1, axis2=2)
    for _ in range(sweeps):
        before = integers.copy()
        for start, stop in _blocks(exact.shape[1]):
            moves = np.zeros_like(integers[:, start:stop])
            for i in range(start, stop):
                own = _short_sum(moment[:, i, start:i], moves[:, : i - start])
                wanted = (pull[:, i] - own) / diagonal[:, i : i + 1]
                new = limits.clip(integers[:, i] + wanted, integers, i)
                moves[:, i - start] = new - integers[:, i]
                integers[:, i] = new
            pull -= moment[:, :, start:stop] @ moves
        if np.array_equal(before, integers):
            break
    return integers


def _short_sum(row: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return row [groups, n] times left [groups, n, channels].

    Not by matmul: its threads cost more than they save on products this small.
    """
    return np.asarray(np.einsum("gn,gnc->gc", row, left))


def _blocks(count: int) -> list[tuple[int, int]]:
    return [(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
