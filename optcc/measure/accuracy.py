"""Accuracy of artifacts against the original model, in one streaming walk over the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial

import numpy as np

from optcc.errors import ConfigError
from optcc.measure.comparison import Comparison
from optcc.measure.environment import usable_cores
from optcc.measure.figures import AccuracyFigures, OutputFigures, Runner, SampleBatch, Samples
from optcc.measure.metric_choice import choose
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


def check_metric(original: Runner, samples: Samples, metric: str | None) -> str | None:
    """Find out early which metric applies; runs the original on one batch.

    Returns:
        Its name; None when there are no labels, so that only agreement can be measured.

    Raises:
        ConfigError: The metric is not known or does not fit the outputs and labels.
    """
    for batch in samples.batches():
        outputs = _run(batch, original)
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

    The models run on the same batch side by side, one core each.

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
    walk: Comparison | None = None
    models = [original, *artifacts.values()]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(min(len(models), usable_cores())))
        for batch in samples.batches():
            reference, *results = pool.map(partial(_run, batch), models)
            if walk is None:
                chosen = choose(reference, batch.labels, samples.labels, metric)
                walk = stack.enter_context(closing(Comparison(chosen, artifacts, reference)))
            walk.add(batch, reference, dict(zip(artifacts, results, strict=True)))
            if on_batch is not None:
                on_batch(walk.samples)
        if walk is None:
            raise ConfigError("there are no evaluation samples")
        return walk.figures()


def _run(batch: SampleBatch, model: Runner) -> Feed:
    return _counted(model.run(batch.feed), batch)


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
