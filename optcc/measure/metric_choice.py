"""Which metric applies, which outputs hold classes, and what a drop means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optcc.errors import ConfigError
from optcc.measure.classes import (
    ClassOutput,
    Reading,
    class_of_labels,
    class_unlabeled,
    is_text,
)
from optcc.measure.metrics import (
    F1,
    METRICS,
    CallableScore,
    MeanAbsoluteError,
    Tally,
    TopK,
    UserMetric,
    load_user_metric,
)
from optcc.passkit.contract import Feed

__all__ = ["MetricChoice", "choose"]

_CLASSIFYING = ("top1", "top5", "f1")
_TOP5 = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChoice:
    """What is measured, decided on the first batch.

    Attributes:
        name: Of the metric; None without labels.
        output: That the metric reads; None for a callable.
        classes: Outputs whose classes are compared, by name.
        text_outputs: Outputs that hold strings.
        remark: What a reader must know besides how classes are read.
        label_spread: Mean absolute deviation of the labels; the unit of a drop of `mae`.
    """

    classes: Mapping[str, ClassOutput]
    text_outputs: tuple[str, ...]
    name: str | None = None
    output: str | None = None
    remark: str = ""
    label_spread: float = 1.0
    user: UserMetric | None = None
    labels: np.ndarray | None = None

    @property
    def note(self) -> str:
        """How it was decided, for the report."""
        return "; ".join([*filter(None, [self.remark]), *(c.why for c in self.classes.values())])

    @property
    def counts_hits(self) -> bool:
        """Whether the metric is a share of right samples."""
        return self.name in ("top1", "top5")

    def tally(self) -> Tally | None:
        """Make an empty accumulator."""
        if self.name is None:
            return None
        if self.user is not None:
            return CallableScore(self.name, self.user, self.labels)
        if self.name == "mae":
            return MeanAbsoluteError(self.output or "")
        source = self.classes[self.output or ""]
        return (
            F1(source) if self.name == "f1" else TopK(source, _TOP5 if self.name == "top5" else 1)
        )

    def drop(self, original: float | None, value: float | None) -> float | None:
        """Return the loss in points; negative when the artifact is better."""
        if original is None or value is None:
            return None
        if self.name == "mae":
            return 100 * (value - original) / self.label_spread
        return 100 * (original - value)


def choose(
    outputs: Feed,
    labels: np.ndarray | None,
    all_labels: np.ndarray | None,
    metric: str | None,
) -> MetricChoice:
    """Decide what to measure.

    Args:
        outputs: Of the original, first batch.
        labels: Of the first batch.
        all_labels: Of all samples.
        metric: What the user asked for.

    Raises:
        ConfigError: The metric is not known or does not fit.
    """
    unlabeled = MetricChoice(
        classes=_unlabeled(outputs, wanted=metric in _CLASSIFYING),
        text_outputs=tuple(n for n, a in outputs.items() if is_text(a)),
    )
    if metric is not None and metric not in METRICS:
        user = load_user_metric(metric)
        return replace(unlabeled, name=metric, user=user, labels=all_labels)
    if labels is not None and all_labels is not None:
        return _labelled(unlabeled, outputs, labels, all_labels, metric)
    if metric is not None:
        return replace(unlabeled, remark=f"no labels, so {metric} was not measured")
    return unlabeled


def _labelled(
    unlabeled: MetricChoice,
    outputs: Feed,
    labels: np.ndarray,
    all_labels: np.ndarray,
    metric: str | None,
) -> MetricChoice:
    whole = _as_classes(labels)
    source = None
    if whole is not None and metric != "mae":
        highest = 0 if is_text(whole) else int(np.asarray(all_labels).max(initial=0))
        source = class_of_labels(outputs, whole, highest)
    name = metric or ("mae" if source is None else "top1")
    if name == "mae":
        return _regression(unlabeled, outputs, labels, all_labels)
    if source is None:
        raise _misfit(name, outputs, labels)
    if name == "top5":
        _check_top5(source, outputs)
    classes = {**unlabeled.classes, source.output: source}
    return replace(unlabeled, name=name, output=source.output, classes=classes)


def _regression(
    unlabeled: MetricChoice, outputs: Feed, labels: np.ndarray, all_labels: np.ndarray
) -> MetricChoice:
    fits = [n for n, a in outputs.items() if a.dtype.kind in "fiu" and a.size == labels.size]
    if not fits or is_text(labels):
        raise _misfit("mae", outputs, labels)
    truth = np.asarray(all_labels, np.float64)
    spread = float(np.abs(truth - np.median(truth)).mean()) or float(np.abs(truth).mean()) or 1.0
    classes = {n: c for n, c in unlabeled.classes.items() if n != fits[0]}
    remark = f"{fits[0]} against the labels; 100 points are their mean absolute deviation"
    return replace(
        unlabeled,
        name="mae",
        output=fits[0],
        classes=classes,
        label_spread=spread,
        remark=remark,
    )


def _as_classes(labels: np.ndarray) -> np.ndarray | None:
    """Return the labels as classes, or None when they are measured values."""
    if is_text(labels) or labels.dtype.kind in "iub":
        return labels
    whole = np.isfinite(labels).all() and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else None


def _check_top5(source: ClassOutput, outputs: Feed) -> None:
    if source.reading is not Reading.SCORES:
        raise ConfigError(f"--metric top5 needs scores per class, {source.why}")
    classes = source.scores(outputs[source.output]).shape[-1]
    if classes <= _TOP5:
        raise ConfigError(
            f"--metric top5 means nothing for {classes} classes", hint="use --metric top1"
        )


def _misfit(name: str, outputs: Feed, labels: np.ndarray) -> ConfigError:
    shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in outputs.items())
    largest = "" if is_text(labels) or not labels.size else f", up to {labels.max():g}"
    return ConfigError(
        f"the labels, {list(labels.shape)} {labels.dtype} per batch{largest}, "
        f"fit no output for {name}",
        hint=f"the outputs are {shapes}; another measure is --metric module:callable",
    )


def _unlabeled(outputs: Feed, *, wanted: bool) -> dict[str, ClassOutput]:
    floats = [n for n, a in outputs.items() if a.dtype.kind == "f"]
    only = len(floats) == 1
    found = (class_unlabeled(n, a, only=only, wanted=wanted) for n, a in outputs.items())
    return {c.output: c for c in found if c is not None}
