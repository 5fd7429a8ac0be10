"""Choose the range of every activation, for the signed and for the unsigned grid apart.

With AUTO every observer proposes, and the proposal wins with which the units that read the value
give the least output error: their weights rounded as planned, their other inputs in float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optcc.calibrate.collector import DEFAULT_BUDGET_BYTES
from optcc.calibrate.dataset import Dataset
from optcc.calibrate.observation import Observations
from optcc.calibrate.observers import Observer, Scheme, observer_for, tail_clips
from optcc.calibrate.trial import Proposals, UnitErrors, try_proposals
from optcc.config.request import Calibrator
from optcc.passkit.qtypes import ActivationRange, QuantPlan, RangeTable

__all__ = ["Slot", "choose_ranges", "slots_of"]

_PROPOSERS = (Calibrator.MINMAX, Calibrator.PERCENTILE, Calibrator.MSE, Calibrator.ENTROPY)
"""In the order of preference among equals: the widest first."""

_NO_NOISE = 1e-20

_SAME = 0.01
"""Share of its width by which a range must differ from another to be worth a trial."""


Slot = tuple[str, ...]
"""Values that carry one range, sorted; one name for a value that shares with none."""


def choose_ranges(
    model: ir.Model,
    plan: QuantPlan,
    observations: Observations,
    samples: Dataset,
    method: Calibrator,
    *,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
) -> RangeTable:
    """Choose the ranges of all values that `plan` needs.

    Args:
        model: The placed float model.
        plan: What is quantized together and what shares a scale.
        observations: Of all values in `plan.observed()`.
        samples: Data that the proposals are tried on; a few samples spread over it are read.
        method: One observer for all, or AUTO.
        budget_bytes: Activations to hold at a time.
    """
    slots = slots_of(plan)
    observers = {t: _observers(t, observations, method) for t in slots}
    proposals = {s: _proposed(observers, observations, s) for s in Scheme}
    trials = try_proposals(model, plan, proposals, observations, samples, budget_bytes)
    outputs = {v.name or "" for v in model.graph.outputs}
    chosen = {s: _chosen(slots, proposals[s], _summed(trials, s), outputs) for s in Scheme}
    return RangeTable(
        signed=chosen[Scheme.SIGNED],
        unsigned=chosen[Scheme.UNSIGNED],
        unit_sqnr_db={t.unit: _sqnr_db(t, proposals, chosen) for t in trials},
    )


def slots_of(plan: QuantPlan) -> list[Slot]:
    """Join the groups that share a value; every other value is alone."""
    leader = {n: n for n in plan.observed()}
    for group in plan.shared_scale:
        merged = {leader[n] for n in group}
        first = min(merged)
        leader = {n: first if at in merged else at for n, at in leader.items()}
    members: dict[str, list[str]] = {}
    for name, first in leader.items():
        members.setdefault(first, []).append(name)
    return [tuple(sorted(names)) for names in members.values()]


def _observers(slot: Slot, observations: Observations, method: Calibrator) -> list[Observer]:
    if method is not Calibrator.AUTO:
        return [observer_for(method)]
    seen = (observations.values[n] for n in slot)
    widest = max(seen, key=lambda o: max(-o.low, o.high))
    return [*(observer_for(m) for m in _PROPOSERS), *tail_clips(widest)]


def _proposed(
    observers: Mapping[Slot, Sequence[Observer]], observations: Observations, scheme: Scheme
) -> dict[str, list[ActivationRange]]:
    """Let each observer propose for each slot: the hull of what it says for the members."""
    proposed = {}
    for slot, able in observers.items():
        seen = [observations.values[n] for n in slot]
        options: list[ActivationRange] = []
        for observer in able:
            hull = _hull([observer.choose(o, scheme) for o in seen])
            if not any(_alike(hull, other) for other in options):
                options.append(hull)
        proposed.update(dict.fromkeys(slot, options))
    return proposed


def _hull(ranges: Sequence[ActivationRange]) -> ActivationRange:
    low, high = min(r.low for r in ranges), max(r.high for r in ranges)
    return ActivationRange(low=low, high=high, method=ranges[0].method)


def _alike(one: ActivationRange, other: ActivationRange) -> bool:
    apart = max(abs(one.low - other.low), abs(one.high - other.high))
    return apart <= _SAME * max(other.high - other.low, one.high - one.low)


def _summed(trials: Sequence[UnitErrors], scheme: Scheme) -> dict[str, np.ndarray]:
    """Sum the errors of each value over the units that read it."""
    summed: dict[str, np.ndarray] = {}
    for trial in trials:
        for (tried, name), errors in trial.errors.items():
            if tried is scheme:
                summed[name] = summed[name] + errors if name in summed else errors
    return summed


def _sqnr_db(
    trial: UnitErrors,
    proposals: Proposals,
    chosen: Mapping[Scheme, Mapping[str, ActivationRange]],
) -> float:
    """Return what the chosen ranges leave of a unit's output, on the worse of the grids."""
    noise = dict.fromkeys(Scheme, 0.0)
    for (scheme, name), errors in trial.errors.items():
        noise[scheme] += float(errors[proposals[scheme][name].index(chosen[scheme][name])])
    return round(-10 * math.log10(max(*noise.values(), _NO_NOISE)), 2)


def _chosen(
    slots: Sequence[Slot],
    proposals: Mapping[str, Sequence[ActivationRange]],
    errors: Mapping[str, np.ndarray],
    outputs: set[str],
) -> dict[str, ActivationRange]:
    """Take the proposal of least error per slot.

    A slot that no unit reads keeps everything if it leaves the model, so that no two results
    become equal by clipping; otherwise the least error of the value itself decides.
    """
    chosen = {}
    for slot in slots:
        options = proposals[slot[0]]
        found = [errors[n] for n in slot if n in errors]
        if found:
            best = options[int(np.argmin(np.sum(found, axis=0)))]
        elif outputs.intersection(slot):
            best = options[0]
        else:
            best = next((o for o in options if o.method == Calibrator.MSE.value), options[0])
        chosen.update(dict.fromkeys(slot, best))
    return dict(sorted(chosen.items()))
