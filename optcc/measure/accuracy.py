"""Accuracy of artifacts against the original model, in one streaming walk over the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from optcc.errors import ConfigError
from optcc.measure.classes import ClassOutput
from optcc.measure.metric_choice import MetricChoice, choose
from optcc.measure.metrics import Tally
from optcc.measure.output_error import WORST_SQNR_DB, OutputError, ValueFigures
from optcc.measure.statistics import drop_interval, mcnemar_p
from optcc.passkit.contract import Feed

__all__ = [
    "AccuracyFigures",
    "OutputFigures",
    "Runner",
    "SampleBatch",
    "Samples",
    "check_metric",
    "evaluate",
    "evaluate_all",
]


class Runner(Protocol):
    """An open model; `optcc.runtime.session.Session` is one."""

    def run(self, feeds: Feed, /) -> Feed:
        """Return all outputs by name."""
        ...


class SampleBatch(Protocol):
    """One feed.

    Attributes:
        count: Leading samples that count; the rest fills a fixed batch up.
    """

    @property
    def feed(self) -> Feed: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def labels(self) -> np.ndarray | None: ...  # noqa: D102


class Samples(Protocol):
    """Evaluation samples; `optcc.calibrate.dataset.Dataset` is one."""

    @property
    def labels(self) -> np.ndarray | None:
        """Labels of all samples, or None."""
        ...

    def batches(self) -> Iterable[SampleBatch]:
        """Yield the feeds in order; may be called again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFigures:
    """One output of an artifact against the same output of the original.

    Attributes:
        sqnr_db: None when nothing differs; -200 when the error has no bound. An output of strings
            counts as 0 and 1: its `cosine` is the share of equal ones.
        agreement: Share of positions with the same class; None when it holds no classes.
        informative: Whether the original names more than one class, so that agreeing means
            something.
        broken: Elements that are finite in one model only.
        mismatched: Batches in which the shapes differ.
    """

    name: str
    max_abs: float
    sqnr_db: float | None
    cosine: float
    agreement: float | None
    informative: bool
    broken: int = 0
    mismatched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyFigures:
    """One artifact on the evaluation samples. Metrics are in 0..1, `mae` in the labels' unit.

    Attributes:
        drop_points: 100 * (original - value); for `mae` the growth of the error in percent of the
            labels' mean absolute deviation.
        drop_ci95: 95 % interval of the drop; only for top1 and top5 with one label per sample.
        per_class: Per label: `original`, `value` and the number of `samples`.
        mcnemar_p: That both are equally often right; where `drop_ci95` is.
        agreement: Of the output that the metric reads, else the least one.
        note: How classes are read and what else a reader must know.
    """

    metric: str | None
    value: float | None
    original: float | None
    drop_points: float | None
    drop_ci95: tuple[float, float] | None
    per_class: dict[str, dict[str, float]] | None
    mcnemar_p: float | None
    agreement: float | None
    outputs: tuple[OutputFigures, ...]
    samples: int
    note: str


def check_metric(original: Runner, samples: Samples, metric: str | None) -> str | None:
    """Find out early which metric applies; runs the original on one batch.

    Returns:
        Its name; None when there are no labels, so that only agreement can be measured.

    Raises:
        ConfigError: The metric is not known or does not fit the outputs and labels.
    """
    for batch in samples.batches():
        outputs = _counted(original.run(batch.feed), batch)
        return choose(outputs, batch.labels, samples.labels, metric).name
    raise ConfigError("there are no evaluation samples")


def evaluate(
    original: Runner, artifact: Runner, samples: Samples, metric: str | None = None
) -> AccuracyFigures:
    """Compare one artifact with the original; see `evaluate_all`."""
    return evaluate_all(original, {"artifact": artifact}, samples, metric)["artifact"]


def evaluate_all(
    original: Runner,
    artifacts: Mapping[str, Runner],
    samples: Samples,
    metric: str | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> dict[str, AccuracyFigures]:
    """Compare artifacts with the original; the original runs once per batch.

    Args:
        original: The reference.
        artifacts: By file name.
        samples: Evaluation data.
        metric: `top1`, `top5`, `f1`, `mae`, `module:callable`; None lets labels and outputs decide.
        on_batch: Called with the number of samples done.

    Raises:
        ConfigError: There are no samples, or the metric does not fit.
        BackendError: A model fails on a feed.
    """
    walk: _Walk | None = None
    for batch in samples.batches():
        reference = _counted(original.run(batch.feed), batch)
        if walk is None:
            chosen = choose(reference, batch.labels, samples.labels, metric)
            walk = _Walk(chosen, list(artifacts), list(reference))
        right = walk.add_original(reference, batch)
        for file, artifact in artifacts.items():
            walk.add(file, reference, _counted(artifact.run(batch.feed), batch), batch, right)
        if on_batch is not None:
            on_batch(walk.samples)
    if walk is None:
        raise ConfigError("there are no evaluation samples")
    return walk.figures()


@dataclass(slots=True)
class _Agreement:
    """How often two models name the same class."""

    source: ClassOutput
    same: int = 0
    total: int = 0
    named: set[object] = field(default_factory=set)

    def add(self, original: np.ndarray, got: np.ndarray) -> None:
        expected = self.source.predict(original)
        self.total += expected.size
        if len(self.named) < 2:
            self.named.update(np.unique(expected).tolist())
        if original.shape == got.shape:
            self.same += int(np.count_nonzero(expected == self.source.predict(got)))


@dataclass(slots=True)
class _Artifact:
    """What is accumulated for one artifact."""

    tally: Tally | None
    errors: dict[str, OutputError]
    agreements: dict[str, _Agreement]
    only_original_right: int = 0
    only_artifact_right: int = 0


class _Walk:
    """Everything that grows while the samples pass by; bounded by classes, not by samples."""

    def __init__(self, choice: MetricChoice, files: Iterable[str], outputs: Iterable[str]) -> None:
        self.samples = 0
        self._choice = choice
        self._names = [n for n in outputs if n not in choice.text_outputs]
        self._tally = choice.tally()
        self._artifacts = {f: self._fresh() for f in files}
        self._labelled = 0
        self._one_per_sample = True

    def _fresh(self) -> _Artifact:
        agreements = {n: _Agreement(s) for n, s in self._choice.classes.items()}
        errors = {n: OutputError() for n in self._names}
        return _Artifact(self._choice.tally(), errors, agreements)

    def add_original(self, outputs: Feed, batch: SampleBatch) -> np.ndarray | None:
        self.samples += batch.count
        if self._tally is None:
            return None
        right = self._tally.add(outputs, batch.labels)
        if right is not None:
            self._labelled += right.size
            self._one_per_sample &= batch.labels is not None and batch.labels.size == batch.count
        return right

    def add(
        self,
        file: str,
        reference: Feed,
        got: Feed,
        batch: SampleBatch,
        right: np.ndarray | None,
    ) -> None:
        one = self._artifacts[file]
        for name, error in one.errors.items():
            error.add(reference[name], got[name])
        for name, agreement in one.agreements.items():
            agreement.add(reference[name], got[name])
        own = None if one.tally is None else one.tally.add(got, batch.labels)
        if own is not None and right is not None:
            one.only_original_right += int(np.count_nonzero(right & ~own))
            one.only_artifact_right += int(np.count_nonzero(own & ~right))

    def figures(self) -> dict[str, AccuracyFigures]:
        original = None if self._tally is None else self._tally.value()
        return {f: self._row(one, original) for f, one in self._artifacts.items()}

    def _row(self, one: _Artifact, original: float | None) -> AccuracyFigures:
        value = None if one.tally is None else one.tally.value()
        outputs = tuple(self._outputs(one))
        interval, p = self._statistics(one)
        return AccuracyFigures(
            metric=self._choice.name,
            value=value,
            original=original,
            drop_points=self._choice.drop(original, value),
            drop_ci95=interval,
            per_class=self._per_class(one),
            mcnemar_p=p,
            agreement=self._agreement(outputs),
            outputs=outputs,
            samples=self.samples,
            note=self._choice.note,
        )

    def _statistics(self, one: _Artifact) -> tuple[tuple[float, float] | None, float | None]:
        if not self._labelled or not self._one_per_sample or not self._choice.counts_hits:
            return None, None
        b, c = one.only_original_right, one.only_artifact_right
        return drop_interval(b, c, self._labelled), mcnemar_p(b, c)

    def _per_class(self, one: _Artifact) -> dict[str, dict[str, float]] | None:
        if self._tally is None or one.tally is None:
            return None
        before, after = self._tally.per_class(), one.tally.per_class()
        rows = {
            c: {"original": v, "value": after[c][0], "samples": float(n)}
            for c, (v, n) in before.items()
        }
        return rows or None

    def _agreement(self, outputs: Iterable[OutputFigures]) -> float | None:
        shares = {o.name: o.agreement for o in outputs if o.agreement is not None}
        own = shares.get(self._choice.output or "")
        return own if own is not None else min(shares.values(), default=None)

    def _outputs(self, one: _Artifact) -> Iterator[OutputFigures]:
        for name in (*self._names, *self._choice.text_outputs):
            agreement, error = one.agreements.get(name), one.errors.get(name)
            share = None if agreement is None else agreement.same / max(1, agreement.total)
            values = _text_figures(share) if error is None else error.figures()
            yield OutputFigures(
                name=name,
                max_abs=values.max_abs,
                sqnr_db=values.sqnr_db,
                cosine=values.cosine,
                agreement=share,
                informative=agreement is None or len(agreement.named) > 1,
                broken=values.broken,
                mismatched=values.mismatched,
            )


def _text_figures(share: float | None) -> ValueFigures:
    same = 1.0 if share is None else share
    return ValueFigures(
        max_abs=0.0 if same == 1 else 1.0,
        sqnr_db=None if same == 1 else WORST_SQNR_DB,
        cosine=same,
        elements=0,
        mismatched=0,
        broken=0,
    )


def _counted(outputs: Mapping[str, object], batch: SampleBatch) -> Feed:
    """Keep the arrays, without the rows that only fill the batch up."""
    arrays = {n: a for n, a in outputs.items() if isinstance(a, np.ndarray)}
    size = max((len(a) for a in batch.feed.values() if a.ndim), default=0)
    if not 0 < batch.count < size:
        return arrays
    return {n: _leading(a, batch.count, size) for n, a in arrays.items()}


def _leading(array: np.ndarray, count: int, size: int) -> np.ndarray:
    if array.ndim == 0 or not len(array) or len(array) % size:
        return array
    return array[: count * (len(array) // size)]
