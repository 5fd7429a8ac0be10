"""Metrics with labels: top1, top5, f1, mae, and a callable of the user's."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Protocol, cast

import numpy as np

from optcc.errors import ConfigError
from optcc.measure.classes import ClassOutput, is_text, squeezed
from optcc.measure.output_spool import OutputSpool
from optcc.passkit.contract import Feed
from optcc.runtime.user_code import import_callable, user_code

__all__ = [
    "F1",
    "METRICS",
    "CallableScore",
    "MeanAbsoluteError",
    "Tally",
    "TopK",
    "UserMetric",
    "load_user_metric",
]

METRICS = ("top1", "top5", "f1", "mae")

UserMetric = Callable[[Mapping[str, object], "np.ndarray | None"], float]
"""Takes all outputs by name and the labels; higher is better."""


class Tally(Protocol):
    """One metric of one model, fed batch by batch."""

    def add(self, outputs: Feed, labels: np.ndarray | None) -> np.ndarray | None:
        """Take a batch; return which positions are right, or None where that means nothing."""
        ...

    def value(self) -> float:
        """Return the metric over all that was added."""
        ...

    def per_class(self) -> dict[str, tuple[float, int]]:
        """Return value and number of labels per class; empty where there are no classes."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


class TopK:
    """Share of positions whose label is among the `k` largest scores. Negative labels are skipped.

    Args:
        source: Where the classes are read from.
        k: 1, or up to the number of classes.
    """

    def __init__(self, source: ClassOutput, k: int) -> None:
        self._source, self._k = source, k
        self._right: dict[object, int] = {}
        self._seen: dict[object, int] = {}

    def add(self, outputs: Feed, labels: np.ndarray | None) -> np.ndarray | None:
        """Take a batch; return which labelled positions are right."""
        truth, array = _truth(labels), outputs[self._source.output]
        counted = np.ones(truth.shape, bool) if is_text(truth) else truth >= 0
        right = self._hits(array, truth)[counted]
        for label, count in _counts(truth[counted]).items():
            self._seen[label] = self._seen.get(label, 0) + count
        for label, count in _counts(truth[counted][right]).items():
            self._right[label] = self._right.get(label, 0) + count
        return right

    def _hits(self, array: np.ndarray, truth: np.ndarray) -> np.ndarray:
        if self._k == 1:
            predicted = self._source.predict(array)
            return np.asarray(_aligned(predicted, truth) == truth)
        scores = self._source.scores(array)
        if scores.shape[:-1] != truth.shape:
            return np.zeros(truth.shape, bool)
        own = np.take_along_axis(scores, np.maximum(truth, 0)[..., None], axis=-1)
        rank = (scores > own).sum(axis=-1)
        return np.asarray((rank < self._k) & ~np.isnan(scores).any(axis=-1))

    def value(self) -> float:
        """Return the share of right positions."""
        return sum(self._right.values()) / max(1, sum(self._seen.values()))

    def per_class(self) -> dict[str, tuple[float, int]]:
        """Return the share per label."""
        labels = sorted(self._seen, key=_class_order)
        return {str(c): (self._right.get(c, 0) / self._seen[c], self._seen[c]) for c in labels}

    def close(self) -> None:
        """Nothing is open."""


class F1:
    """F1 of class 1 when the labels are 0 and 1, else the mean of F1 over the labelled classes."""

    def __init__(self, source: ClassOutput) -> None:
        self._source = source
        self._counts: dict[object, list[int]] = {}  # hits, false alarms, misses

    def add(self, outputs: Feed, labels: np.ndarray | None) -> np.ndarray | None:
        """Take a batch; return which labelled positions are right."""
        truth = _truth(labels)
        counted = np.ones(truth.shape, bool) if is_text(truth) else truth >= 0
        predicted = _aligned(self._source.predict(outputs[self._source.output]), truth)
        truth, predicted = truth[counted], predicted[counted]
        right = np.asarray(predicted == truth)
        for place, labels_there in enumerate((truth[right], predicted[~right], truth[~right])):
            for label, count in _counts(labels_there).items():
                self._counts.setdefault(label, [0, 0, 0])[place] += count
        return right

    def value(self) -> float:
        """Return F1 in 0..1."""
        labelled = {c: n for c, n in self._counts.items() if n[0] + n[2]}
        if set(labelled) <= {0, 1} and labelled:
            return _f1(self._counts.get(1, [0, 0, 0]))
        return sum(map(_f1, labelled.values())) / max(1, len(labelled))

    def per_class(self) -> dict[str, tuple[float, int]]:
        """Return F1 per labelled class."""
        labelled = [c for c, n in self._counts.items() if n[0] + n[2]]
        counts = {c: self._counts[c] for c in sorted(labelled, key=_class_order)}
        return {str(c): (_f1(n), n[0] + n[2]) for c, n in counts.items()}

    def close(self) -> None:
        """Nothing is open."""


class MeanAbsoluteError:
    """Mean of |output - label|; lower is better.

    Args:
        output: Its size per sample must be that of the labels.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._sum, self._count = 0.0, 0

    def add(self, outputs: Feed, labels: np.ndarray | None) -> np.ndarray | None:
        """Take a batch."""
        truth = np.asarray(labels, np.float64)
        got = outputs[self._output].astype(np.float64)
        if got.size != truth.size:
            self._sum, self._count = math.inf, self._count + truth.size
            return None
        self._sum += float(np.abs(got.ravel() - truth.ravel()).sum())
        self._count += truth.size
        return None

    def value(self) -> float:
        """Return the mean error in the unit of the labels."""
        return self._sum / max(1, self._count)

    def per_class(self) -> dict[str, tuple[float, int]]:
        """There are no classes."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


class CallableScore:
    """A metric of the user's, called once on all outputs.

    Args:
        name: As the user wrote it.
        labels: Of all samples, or None.
    """

    def __init__(self, name: str, metric: UserMetric, labels: np.ndarray | None) -> None:
        self._name, self._metric, self._labels = name, metric, labels
        self._spool = OutputSpool()

    def add(self, outputs: Feed, labels: np.ndarray | None) -> np.ndarray | None:
        """Take a batch; the outputs go to a temporary file."""
        self._spool.add(outputs)
        return None

    def value(self) -> float:
        """Call the metric.

        Raises:
            ConfigError: It fails, or returns something else than a finite number.
        """
        with user_code(f"--metric {self._name}"):
            result = self._metric(self._spool.arrays(), self._labels)
        try:
            value = float(result)
        except (TypeError, ValueError) as error:
            what = f"--metric {self._name} returned {type(result).__name__}, not a number"
            raise ConfigError(what) from error
        if not math.isfinite(value):
            raise ConfigError(f"--metric {self._name} returned {value}")
        return value

    def per_class(self) -> dict[str, tuple[float, int]]:
        """There are no classes."""
        return {}

    def close(self) -> None:
        """Remove the temporary file."""
        self._spool.close()


def load_user_metric(text: str) -> UserMetric:
    """Import `module:callable`; the working folder is searched first.

    Raises:
        ConfigError: It is neither a known metric's name nor importable.
    """
    if ":" not in text:
        near = difflib.get_close_matches(text, METRICS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(METRICS)}"
        raise ConfigError(f"--metric {text} is not known", hint=f"{hint}; or module:callable")
    return cast("UserMetric", import_callable("--metric", text))


def _truth(labels: np.ndarray | None) -> np.ndarray:
    truth = squeezed(np.asarray(labels))
    return truth if is_text(truth) else truth.astype(np.int64)


def _aligned(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return predicted if predicted.shape == truth.shape else np.full(truth.shape, -1)


def _counts(labels: np.ndarray) -> dict[object, int]:
    values, counts = np.unique(
        labels.astype(str) if is_text(labels) else labels, return_counts=True
    )
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _class_order(label: object) -> tuple[bool, float, str]:
    number = isinstance(label, int)
    return (not number, float(label) if isinstance(label, int) else 0.0, str(label))


def _f1(counts: list[int]) -> float:
    hits, false_alarms, misses = counts
    return 2 * hits / max(1, 2 * hits + false_alarms + misses)
