"""Error of one output against the original, accumulated batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["WORST_SQNR_DB", "OutputError", "ValueFigures"]

WORST_SQNR_DB = -200.0
"""Stands for an error without bound: the artifact is not finite, or the original is all zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFigures:
    """Error over all elements that were seen.

    Attributes:
        sqnr_db: Signal to noise; None when nothing differs.
        mismatched: Batches whose shapes differ, so that nothing could be subtracted.
        broken: Elements that are finite in one model only, or differently infinite.
    """

    max_abs: float
    sqnr_db: float | None
    cosine: float
    elements: int
    mismatched: int
    broken: int


class OutputError:
    """Sums of one numeric output; memory does not grow with the data."""

    def __init__(self) -> None:
        self._signal = self._noise = self._dot = self._energy = self._max_abs = 0.0
        self._elements = self._mismatched = self._broken = 0

    def add(self, original: np.ndarray, got: np.ndarray) -> None:
        """Take one batch of both models."""
        if original.shape != got.shape:
            self._mismatched += 1
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(original.astype(np.float64).ravel(), got.astype(np.float64).ravel())

    def _add(self, a: np.ndarray, b: np.ndarray) -> None:
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            self._broken += int(np.count_nonzero(~finite & ~same))
            a, b = a[finite], b[finite]
        self._elements += a.size
        if not a.size:
            return
        error = b - a
        self._max_abs = max(self._max_abs, float(np.abs(error).max()))
        self._signal += float(a @ a)
        self._energy += float(b @ b)
        self._noise += float(error @ error)
        self._dot += float(a @ b)

    def figures(self) -> ValueFigures:
        """Summarize what was seen so far."""
        return ValueFigures(
            max_abs=self._max_abs,
            sqnr_db=self._sqnr(),
            cosine=self._cosine(),
            elements=self._elements,
            mismatched=self._mismatched,
            broken=self._broken,
        )

    def _sqnr(self) -> float | None:
        if self._mismatched or self._broken:
            return WORST_SQNR_DB
        if self._noise == 0:
            return None
        if self._signal == 0 or not math.isfinite(self._noise):
            return WORST_SQNR_DB
        return max(WORST_SQNR_DB, 10 * math.log10(self._signal / self._noise))

    def _cosine(self) -> float:
        if self._mismatched or self._broken:
            return 0.0
        if self._noise == 0:
            return 1.0
        if self._signal == 0 or self._energy == 0:
            return 0.0
        if not math.isfinite(self._dot) or not math.isfinite(self._signal + self._energy):
            return 0.0
        # Rounding of the sums must not show a cosine of 1.0000000002.
        return max(-1.0, min(1.0, self._dot / math.sqrt(self._signal) / math.sqrt(self._energy)))
