"""Try proposed ranges on the units that read the values, and measure the output errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.calibrate.dataset import Dataset
from optcc.calibrate.observation import Observation, Observations
from optcc.calibrate.observers import Scheme, clipping_error, kept_by
from optcc.calibrate.rounding import rounded_activation
from optcc.calibrate.taps import ELEMENT_BYTES, measured_bytes, tapped, typical_feed
from optcc.calibrate.unit_model import UnitModel, entering_values, multiplications
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import ActivationRange, QuantPlan, QuantUnit

__all__ = ["Proposals", "UnitErrors", "try_proposals"]

Proposals = Mapping[Scheme, Mapping[str, Sequence[ActivationRange]]]
"""Per grid and value name the ranges to try."""

_MOST_SAMPLES = 64
_LEAST_SAMPLES = 2
_ENOUGH_SAMPLES = 6
_ENOUGH_BYTES = 16 << 20
_ENOUGH_MULTIPLICATIONS = 8e9
_MOST_PASSES = 4
_ROWS = 8
"""Samples in one run of a unit, where the batch is free."""


@dataclass(frozen=True, slots=True)
class UnitErrors:
    """What the proposals for the values that a unit reads do to its output.

    Attributes:
        unit: Name of the unit's output.
        errors: Per grid and value one squared error per proposal, relative to the output's power.
    """

    unit: str
    errors: Mapping[tuple[Scheme, str], np.ndarray]


@dataclass(frozen=True, slots=True)
class _Trial:
    unit: QuantUnit
    nodes: list[ir.Node]
    entering: tuple[str, ...]
    reads: tuple[tuple[Scheme, str], ...]


def try_proposals(
    model: ir.Model,
    plan: QuantPlan,
    proposals: Proposals,
    observations: Observations,
    samples: Dataset,
    budget_bytes: int,
) -> list[UnitErrors]:
    """Run every unit with every proposal for what it reads, the other values in float.

    Only the samples needed to tell the proposals apart are run. Units whose output is zero or not
    finite tell nothing and are missing.
    """
    pending = _trials(model, plan, proposals)
    if not pending:
        return []
    feeds, sizes = _few(model, pending, proposals, samples, budget_bytes)
    found = []
    for group in _grouped(pending, sizes, budget_bytes):
        fetched = _fetched(model, group, feeds)
        found += [e for t in group for e in _errors(model, t, fetched, proposals, observations)]
    return found


def _trials(model: ir.Model, plan: QuantPlan, proposals: Proposals) -> list[_Trial]:
    nodes = {n.name: n for n in model.graph}
    kinds = [(u, tuple(Scheme)) for u in plan.units]
    kinds += [(u, (Scheme.UNSIGNED,)) for u in plan.cpu_units]
    pending = []
    for unit, schemes in kinds:
        own = [nodes[n] for n in unit.nodes]
        entering = tuple(v.name or "" for v in entering_values(own))
        reads = tuple((s, n) for s in schemes for n in unit.activations if n in entering)
        telling = unit.weight is not None or any(len(proposals[s][n]) > 1 for s, n in reads)
        if reads and telling:
            pending.append(_Trial(unit, own, entering, reads))
    return pending


def _few(
    model: ir.Model,
    pending: Sequence[_Trial],
    proposals: Proposals,
    samples: Dataset,
    budget_bytes: int,
) -> tuple[list[Feed], dict[str, int]]:
    """Take few samples: enough numbers to tell ranges apart, and no more work than that is worth.

    Returns:
        The feeds, and the bytes of each value over all of them.
    """
    batch = next(samples.batches())
    feed, rows = typical_feed(batch, free_batch=samples.free_batch)
    count = batch.count if rows is None else rows
    names = dict.fromkeys(n for t in pending for n in (*t.entering, t.unit.output))
    sizes = measured_bytes(model, list(names), feed)
    held = sum(sizes[n] for n in dict.fromkeys(n for t in pending for n in t.entering)) / count
    work = _work(model, pending, proposals, sizes) / count
    enough = min(_ENOUGH_BYTES / max(held, 1), _ENOUGH_MULTIPLICATIONS / max(work, 1))
    fitting = max(int(_MOST_PASSES * budget_bytes / max(held, 1)), _LEAST_SAMPLES)
    wanted = min(max(int(enough), _ENOUGH_SAMPLES), _MOST_SAMPLES, fitting)
    feeds = list(_feeds(samples, wanted))
    taken = sum(len(next(iter(f.values()))) for f in feeds) if rows else len(feeds) * count
    return feeds, {n: math.ceil(size * taken / count) for n, size in sizes.items()}


def _work(
    model: ir.Model,
    pending: Sequence[_Trial],
    proposals: Proposals,
    sizes: Mapping[str, int],
) -> int:
    """Estimate the multiplications of all trials on the feed that gave `sizes`."""
    work = 0
    for trial in pending:
        runs = 1 + sum(len(proposals[s][n]) for s, n in trial.reads)
        elements = sizes[trial.unit.output] // ELEMENT_BYTES
        work += runs * multiplications(model, trial.unit, elements)
    return work


def _feeds(samples: Dataset, wanted: int) -> Iterator[Feed]:
    """Yield about `wanted` samples spread over the data, in small feeds where they may be cut."""
    few = samples.thinned(wanted)
    share = min(1.0, wanted / few.samples)
    for batch in few.batches():
        if not samples.free_batch:
            yield batch.feed
            continue
        count = max(1, round(batch.count * share))
        rows = np.arange(count) * batch.count // count
        for start in range(0, count, _ROWS):
            yield {n: a[rows[start : start + _ROWS]] for n, a in batch.feed.items()}


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


def _fetched(model: ir.Model, group: Sequence[_Trial], feeds: Sequence[Feed]) -> list[Feed]:
    names = list(dict.fromkeys(n for t in group for n in t.entering))
    with tapped(model, names) as tap:
        return [tap.fetch(feed) for feed in feeds]


def _errors(
    model: ir.Model,
    trial: _Trial,
    fetched: Sequence[Feed],
    proposals: Proposals,
    observations: Observations,
) -> Iterator[UnitErrors]:
    inputs = [{n: f[n] for n in trial.entering} for f in fetched]
    unit_model = UnitModel(model, trial.nodes, trial.unit, inputs[0])
    tallies = {
        (s, n): [_Tally(s, r, observations.values[n]) for r in proposals[s][n]]
        for s, n in trial.reads
    }
    power = 0.0
    for feed in inputs:
        want = unit_model.run(feed, rounded=False)
        power += _power(want)
        for (_, name), options in tallies.items():
            for tally in options:
                rounded = tally.round(feed[name])
                got = unit_model.run(feed | {name: rounded}, rounded=True)
                tally.output_error += _power(got - want)
    if np.isfinite(power) and power > 0:
        errors = {r: np.array([t.expected() for t in ts]) / power for r, ts in tallies.items()}
        yield UnitErrors(trial.unit.output, errors)


class _Tally:
    """Errors of one proposal on the few samples that were run.

    Attributes:
        output_error: Squared error of the unit's output.
    """

    def __init__(self, scheme: Scheme, interval: ActivationRange, seen: Observation) -> None:
        self._scheme, self._interval = scheme, interval
        self._clipped_overall = clipping_error(seen, interval, scheme)
        self._elements, self._input_error, self._clipped = 0, 0.0, 0.0
        self.output_error = 0.0

    def round(self, values: np.ndarray) -> np.ndarray:
        """Round `values` and take note of what that does to them."""
        rounded = rounded_activation(values, self._interval, self._scheme)
        if self._clipped_overall > 0:
            self._elements += values.size
            self._input_error += _power(rounded - values)
            low, high = kept_by(self._interval, self._scheme)
            kept = np.clip(values, np.float32(low), np.float32(high))
            self._clipped += _power(values - kept)
        return rounded

    def expected(self) -> float:
        """Return the output error, corrected for rare values that the few samples lack.

        What all samples lose by clipping beyond what the few do is passed on to the output like
        the input error that was measured.
        """
        lacking = self._clipped_overall * self._elements - self._clipped
        if lacking <= 0 or self._input_error <= 0:
            return self.output_error
        return self.output_error * (1 + lacking / self._input_error)


def _power(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float32).sum(dtype=np.float64))
