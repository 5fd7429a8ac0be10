"""Accumulators behind a comparison of accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from optcc.measure.classes import ClassOutput
from optcc.measure.figures import AccuracyFigures, OutputFigures, SampleBatch
from optcc.measure.metric_choice import MetricChoice
from optcc.measure.metrics import Tally
from optcc.measure.output_error import WORST_SQNR_DB, OutputError, ValueFigures
from optcc.measure.statistics import drop_interval, mcnemar_p
from optcc.passkit.contract import Feed

__all__ = ["Comparison"]


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

    def add(self, batch: SampleBatch, reference: Feed, got: Feed, right: np.ndarray | None) -> None:
        for name, error in self.errors.items():
            error.add(reference[name], got[name])
        for name, agreement in self.agreements.items():
            agreement.add(reference[name], got[name])
        own = None if self.tally is None else self.tally.add(got, batch.labels)
        if own is not None and right is not None:
            self.only_original_right += int(np.count_nonzero(right & ~own))
            self.only_artifact_right += int(np.count_nonzero(own & ~right))


class Comparison:
    """Everything that accumulates while the samples pass by; bounded by classes, not by samples.

    Args:
        choice: What is measured.
        files: Of the artifacts.
        outputs: Names of the outputs.
    """

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

    def add(self, batch: SampleBatch, reference: Feed, results: Mapping[str, Feed]) -> None:
        """Take one batch: outputs of the original, and of every artifact by file."""
        self.samples += batch.count
        right = None if self._tally is None else self._tally.add(reference, batch.labels)
        if right is not None:
            self._labelled += right.size
            self._one_per_sample &= batch.labels is not None and batch.labels.size == batch.count
        for file, got in results.items():
            self._artifacts[file].add(batch, reference, got, right)

    def figures(self) -> dict[str, AccuracyFigures]:
        """Return the figures of every artifact by file."""
        original = None if self._tally is None else self._tally.value()
        return {f: self._row(one, original) for f, one in self._artifacts.items()}

    def close(self) -> None:
        """Let go of temporary files."""
        for tally in (self._tally, *(one.tally for one in self._artifacts.values())):
            if tally is not None:
                tally.close()

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
