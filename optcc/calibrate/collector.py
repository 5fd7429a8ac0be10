"""Run the float model over the data and keep a record of every named value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from optcc.calibrate.dataset import Dataset
from optcc.calibrate.observation import Observation, Observations
from optcc.calibrate.taps import RunPlan, fed_names, plan_runs, tapped, typical_feed
from optcc.progress import Progress

__all__ = ["DEFAULT_BUDGET_BYTES", "collect", "plan_for"]

DEFAULT_BUDGET_BYTES = 128 << 20
"""Activations that are held at a time."""


def collect(
    model: ir.Model,
    values: Sequence[str],
    dataset: Dataset,
    progress: Progress,
    *,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> Observations:
    """Observe the named values of the main graph over all samples.

    Memory is bounded by the budget, the model and one small record per value, whatever the number
    of samples. Rows that only fill up a fixed batch repeat real samples and are taken in too.

    Args:
        model: Float model; it is not changed.
        values: Names of model inputs, constants or results of nodes.
        dataset: Data that fits the model.
        progress: Told after each feed.
        budget_bytes: Activations to hold at a time; where one feed exceeds it, the batch is cut
            if the model allows it, else values are collected in several passes.
    """
    seen = {name: Observation() for name in sorted(set(values))}
    names = _moving(model, seen)
    plan = plan_for(model, names, dataset, budget_bytes)
    total = dataset.samples * len(plan.groups)
    done = 0
    for group in plan.groups:
        with tapped(model, group) as tap:
            for batch in dataset.batches():
                for part in plan.parts(batch.feed):
                    for name, array in tap.fetch(part).items():
                        seen[name].add(array)
                done += batch.count
                progress.step(done, total)
    return Observations(seen, dataset.samples)


def plan_for(model: ir.Model, names: Sequence[str], dataset: Dataset, budget_bytes: int) -> RunPlan:
    """Plan the runs by the first feed of the dataset, scaled to the largest it holds."""
    batch = next(dataset.batches())
    feed, rows = typical_feed(batch, free_batch=dataset.free_batch)
    skipped = 0 if rows is None else 1
    largest = sum(math.prod(shapes[-1][skipped:]) for shapes in dataset.shapes.values())
    growth = max(1.0, largest / sum(math.prod(a.shape[skipped:]) for a in feed.values()))
    return plan_runs(model, names, feed, rows, int(budget_bytes / growth))


def _moving(model: ir.Model, seen: dict[str, Observation]) -> list[str]:
    """Observe the constants among the values; return the names that depend on the feed."""
    made = {v.name for node in model.graph for v in node.outputs}
    fed = fed_names(model)
    moving = []
    for name, observation in seen.items():
        weight = model.graph.initializers.get(name)
        if weight is not None and weight.const_value is not None:
            observation.add(weight.const_value.numpy())
        elif name in made or name in fed:
            moving.append(name)
        else:
            raise ValueError(f"the main graph has no value {name!r} to calibrate")
    return moving
