"""Which output says the class, and how a class is read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

__all__ = ["ClassOutput", "Reading", "class_of_labels", "class_unlabeled", "is_text", "squeezed"]

_CLASS_NAME = re.compile(r"logit|prob|class|cls|softmax|pred|label|score|categor", re.IGNORECASE)
_VALUE_NAME = re.compile(
    r"embed|feature|hidden|state|box|loc|coord|offset|mean|var|vector", re.IGNORECASE
)
_TEXT, _WHOLE = "OUS", "iub"
_UNIT_TOLERANCE = 2e-3
_EMBEDDING_FROM, _EMBEDDING_STEP = 64, 32


class Reading(Enum):
    """How a class is read."""

    SCORES = "largest score"
    INDEX = "class index"
    BINARY = "score against a threshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOutput:
    """The output that a class is read from.

    Attributes:
        axis: Of the classes, in the output without its singleton dims; SCORES only.
        threshold: Above it the class is 1; BINARY only.
        why: One phrase for the report.
    """

    output: str
    reading: Reading
    axis: int = -1
    threshold: float = 0.0
    why: str

    def predict(self, array: np.ndarray) -> np.ndarray:
        """Return a class per position; -1 where a score is not a number."""
        core = squeezed(array)
        if self.reading is Reading.INDEX:
            return core if core.dtype.kind in _TEXT else core.astype(np.int64)
        if self.reading is Reading.BINARY:
            return np.where(np.isnan(core), -1, core > self.threshold).astype(np.int64)
        unclear = np.isnan(core).any(axis=self.axis)
        return np.where(unclear, -1, core.argmax(axis=self.axis))

    def scores(self, array: np.ndarray) -> np.ndarray:
        """Return the scores as [..., classes]."""
        return np.moveaxis(squeezed(array), self.axis, -1)


def squeezed(array: np.ndarray) -> np.ndarray:
    """Drop dims of size 1 but the first."""
    keep = [n for i, n in enumerate(array.shape) if i == 0 or n != 1]
    return array.reshape(keep)


def is_text(array: np.ndarray) -> bool:
    """Whether the elements are strings."""
    return array.dtype.kind in _TEXT


def class_of_labels(
    outputs: Mapping[str, np.ndarray], labels: np.ndarray, highest: int = 0
) -> ClassOutput | None:
    """Find the output that speaks about `labels`.

    Args:
        outputs: One batch of the original model.
        labels: Labels of that batch, [batch] or [batch, positions...]; whole numbers or text.
        highest: Largest label of all batches.

    Returns:
        Scores before indices before a single score; None when no output fits.
    """
    labels = squeezed(labels)
    if is_text(labels):
        found = (_index_for(name, array, labels, _TEXT) for name, array in outputs.items())
        return next((f for f in found if f is not None), None)
    for find in (_scores_for, _whole_for, _binary_for):
        for name, array in outputs.items():
            one = find(name, array, labels, highest)
            if one is not None:
                return one
    return None


def class_unlabeled(
    name: str, array: np.ndarray, *, only: bool, wanted: bool
) -> ClassOutput | None:
    """Decide whether an output looks like classes when there are no labels.

    Args:
        name: Of the output.
        array: One batch of the original model.
        only: Whether the model has no other float output of this kind.
        wanted: Whether the user asked for a classification metric.
    """
    core = squeezed(array)
    if array.dtype.kind in _WHOLE + _TEXT:
        return ClassOutput(output=name, reading=Reading.INDEX, why=f"{name} is discrete")
    if array.dtype.kind != "f" or core.ndim < 2 or not core.size:
        return None
    axis = _simplex_axis(core)
    if axis is not None:
        return _scores(name, axis, core, "its scores add up to 1")
    if core.ndim != 2 or array.ndim == 3:  # [batch, positions, 1] is one score per position
        return None
    if _VALUE_NAME.search(name) and not wanted:
        return None
    if _CLASS_NAME.search(name) or wanted:
        return _scores(name, 1, core, "by its name" if not wanted else "as the metric asks")
    return _scores(name, 1, core, "it looks like logits") if only and _logit_like(core) else None


def _scores(name: str, axis: int, core: np.ndarray, why: str) -> ClassOutput:
    text = f"largest of {core.shape[axis]} scores of {name} ({why})"
    return ClassOutput(output=name, reading=Reading.SCORES, axis=axis, why=text)


def _scores_for(
    name: str, array: np.ndarray, labels: np.ndarray, highest: int
) -> ClassOutput | None:
    core = squeezed(array)
    if array.dtype.kind != "f" or core.ndim != labels.ndim + 1:
        return None
    for axis in dict.fromkeys((1, core.ndim - 1)):
        rest = core.shape[:axis] + core.shape[axis + 1 :]
        if rest == labels.shape and core.shape[axis] > highest:
            return _scores(name, axis, core, "its shape fits the labels")
    return None


def _whole_for(name: str, array: np.ndarray, labels: np.ndarray, _: int) -> ClassOutput | None:
    return _index_for(name, array, labels, _WHOLE)


def _index_for(name: str, array: np.ndarray, labels: np.ndarray, kinds: str) -> ClassOutput | None:
    if array.dtype.kind not in kinds or squeezed(array).shape != labels.shape:
        return None
    return ClassOutput(output=name, reading=Reading.INDEX, why=f"{name} is the class itself")


def _binary_for(
    name: str, array: np.ndarray, labels: np.ndarray, highest: int
) -> ClassOutput | None:
    core = squeezed(array)
    if array.dtype.kind != "f" or core.shape != labels.shape or highest > 1:
        return None
    share = bool(core.size and np.nanmin(core) >= 0 and np.nanmax(core) <= 1)
    threshold = 0.5 if share else 0.0
    why = f"{name} above {threshold} is class 1"
    return ClassOutput(output=name, reading=Reading.BINARY, threshold=threshold, why=why)


def _simplex_axis(core: np.ndarray) -> int | None:
    if not np.isfinite(core).all() or core.min() < 0:
        return None
    for axis in dict.fromkeys((core.ndim - 1, 1)):
        sums = core.sum(axis=axis, dtype=np.float64)
        if core.shape[axis] > 1 and np.abs(sums - 1).max() < _UNIT_TOLERANCE:
            return axis
    return None


def _logit_like(core: np.ndarray) -> bool:
    classes = core.shape[1]
    if classes >= _EMBEDDING_FROM and classes % _EMBEDDING_STEP == 0:
        return False
    norms = np.linalg.norm(core.astype(np.float64), axis=1)
    return not bool((np.abs(norms - 1) <= _UNIT_TOLERANCE).all())
