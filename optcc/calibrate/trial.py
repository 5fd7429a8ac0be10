"""Try proposed ranges on the units that read the values, and sum the output errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.calibrate.dataset import Dataset
from optcc.calibrate.observers import Scheme
from optcc.calibrate.rounding import rounded_activation
from optcc.calibrate.taps import measured_bytes, tapped
from optcc.calibrate.unit_model import UnitModel, entering_values
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import ActivationRange, QuantPlan, QuantUnit

__all__ = ["Proposals", "output_errors"]

Proposals = Mapping[Scheme, Mapping[str, Sequence[ActivationRange]]]
"""Per grid and value name the ranges to try."""

Errors = dict[Scheme, dict[str, np.ndarray]]

_ENOUGH_BYTES = 16 << 20
_ENOUGH_SAMPLES = 8
_MOST_SAMPLES = 64
_LEAST_SAMPLES = 2
_MOST_PASSES = 4


@dataclass(frozen=True, slots=True)
class _Trial:
    """A unit that reads values with more than one proposal."""

    unit: QuantUnit
    nodes: list[ir.Node]
    schemes: tuple[Scheme, ...]
    entering: tuple[str, ...]


def output_errors(
    model: ir.Model,
    plan: QuantPlan,
    proposals: Proposals,
    samples: Dataset,
    budget_bytes: int,
) -> Errors:
    """Return, per grid and value, the error that each proposal makes in the units that read it.

    Errors are squared, relative to the output's power and summed over the units. Values that no
    unit reads, or that have one proposal, are missing.
    """
    errors: Errors = {s: {} for s in Scheme}
    pending = _trials(model, plan, proposals)
    if not pending:
        return errors
    names = list(dict.fromkeys(n for t in pending for n in t.entering))
    few, sizes = _few(model, names, samples, budget_bytes)
    for group in _grouped(pending, sizes, budget_bytes):
        feeds = _fetched(model, group, few)
        for trial in group:
            _add_errors(errors, model, trial, feeds, proposals)
    return errors


def _trials(model: ir.Model, plan: QuantPlan, proposals: Proposals) -> list[_Trial]:
    nodes = {n.name: n for n in model.graph}
    kinds = [(u, tuple(Scheme)) for u in plan.units]
    kinds += [(u, (Scheme.UNSIGNED,)) for u in plan.cpu_units]
    pending = []
    for unit, schemes in kinds:
        open_schemes = tuple(
            s for s in schemes if any(len(proposals[s][n]) > 1 for n in unit.activations)
        )
        if open_schemes:
            own = [nodes[n] for n in unit.nodes]
            entering = tuple(v.name or "" for v in entering_values(own))
            pending.append(_Trial(unit, own, open_schemes, entering))
    return pending


def _few(
    model: ir.Model, names: Sequence[str], samples: Dataset, budget_bytes: int
) -> tuple[Dataset, dict[str, int]]:
    """Thin the samples: enough numbers to tell ranges apart, a few passes of the budget at most.

    Returns:
        The samples, and the bytes of each value over all of them.
    """
    batch = next(samples.batches())
    sizes = measured_bytes(model, names, batch.feed)
    per_sample = max(sum(sizes.values()) / batch.count, 1.0)
    enough = min(max(int(_ENOUGH_BYTES / per_sample), _ENOUGH_SAMPLES), _MOST_SAMPLES)
    fitting = max(int(_MOST_PASSES * budget_bytes / per_sample), _LEAST_SAMPLES)
    few = samples.thinned(min(enough, fitting))
    return few, {n: -(-size * few.samples // batch.count) for n, size in sizes.items()}


def _grouped(
    pending: Sequence[_Trial], sizes: Mapping[str, int], budget_bytes: int
) -> Iterator[list[_Trial]]:
    group: list[_Trial] = []
    held: set[str] = set()
    for trial in pending:
        together = held | set(trial.entering)
        if group and sum(sizes[n] for n in together) > budget_bytes:
            yield group
            group, together = [], set(trial.entering)
        group.append(trial)
        held = together
    yield group


def _fetched(model: ir.Model, group: Sequence[_Trial], few: Dataset) -> list[Feed]:
    names = list(dict.fromkeys(n for t in group for n in t.entering))
    with tapped(model, names) as tap:
        return [tap.fetch(feed) for feed in few]


def _add_errors(
    errors: Errors, model: ir.Model, trial: _Trial, feeds: Sequence[Feed], proposals: Proposals
) -> None:
    inputs = [{n: f[n] for n in trial.entering} for f in feeds]
    unit_model = UnitModel(model, trial.nodes, trial.unit, inputs[0])
    wanted = [unit_model.run(f, rounded=False) for f in inputs]
    power = sum(_power(y) for y in wanted)
    if not (np.isfinite(power) and power > 0):
        return
    for scheme in trial.schemes:
        for name in (n for n in trial.unit.activations if n in trial.entering):
            found = np.zeros(len(proposals[scheme][name]))
            for k, interval in enumerate(proposals[scheme][name]):
                for feed, want in zip(inputs, wanted, strict=True):
                    tried = feed | {name: rounded_activation(feed[name], interval, scheme)}
                    found[k] += _power(unit_model.run(tried, rounded=True) - want) / power
            errors[scheme][name] = errors[scheme].get(name, 0.0) + found


def _power(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float32).sum(dtype=np.float64))
