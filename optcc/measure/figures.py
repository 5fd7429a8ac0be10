"""What a comparison of accuracy reads and what it gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optcc.passkit.contract import Feed

__all__ = ["AccuracyFigures", "OutputFigures", "Runner", "SampleBatch", "Samples"]


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
