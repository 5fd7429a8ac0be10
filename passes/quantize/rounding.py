"""Round int8 weights so that the errors of a channel cancel on the data it reads.

The nearest integers make the error of every weight small by itself. What counts is the error of
their sum over inputs that go together: one weight may round up because another one rounded down.
The mathematics is in `second_order`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.passkit.arithmetic import one_thread
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit, Rounding
from passes.lower.rules import SPELLINGS, SpellingRules, spelling_rules
from passes.lower.saturation import MOST_SUM, least_safe_scale, partners
from passes.lower.weighing import least_bias_scale, quantized_weight
from passes.quantize.layers import output_axis
from passes.quantize.moments import Moment, Reading, moments
from passes.quantize.relax import some_feeds
from passes.quantize.second_order import Curvature, best_rounding, curvature_of, less_wrong
from passes.quantize.stepping import Limits
from passes.quantize.windows import geometry_of

__all__ = ["CompensateRounding", "RoundingOptions"]

_SHARES = (1.0, 0.985, 0.96, 0.9)
"""Of the scale that clips nothing."""

_LEAST_SCALE = 1e-12
_READERS = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingOptions:
    """How much data and work goes into it.

    Attributes:
        samples: That the inputs of the layers are taken from.
        rows: Sums that are looked at per layer, over all samples.
        most_inputs: Of one sum; the work grows with their third power.
    """

    samples: int = 64
    rows: int = 6144
    most_inputs: int = 5120


class CompensateRounding:
    """Fill `ctx.plan.roundings`; the spellings write these integers.

    They are chosen on one half of the samples, and a channel keeps them where they make its error
    on the other half smaller than the nearest integers do.

    Keeps: every byte of the graph.
    """

    name = "quantize.rounding"
    exactness = Exactness.BITWISE
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset()
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def __init__(self, options: RoundingOptions | None = None) -> None:
        self.options = options or RoundingOptions()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Round the weights of both spellings."""
        feeds = some_feeds(ctx.samples(), self.options.samples)
        if ctx.plan is None or ctx.ranges is None or len(feeds) < 2:
            return PassResult()
        rules = spelling_rules(model.graph, ctx.plan, ctx.ranges, ctx.cpu_class)
        result = PassResult()
        layers = self._layers(model.graph, ctx.plan, rules, result)
        readings = list(dict.fromkeys(layer.reading for layer in layers))
        chosen: dict[str, dict[str, Rounding]] = {s: {} for s in SPELLINGS}
        with one_thread():
            for reading, *halves in moments(model, ctx, feeds, readings, self.options.rows):
                same = [layer for layer in layers if layer.reading == reading]
                _round(same, halves[0], halves[1], chosen, result)
        ctx.plan = replace(ctx.plan, roundings=chosen)
        return result

    def _layers(
        self,
        graph: ir.Graph,
        plan: QuantPlan,
        rules: Mapping[str, SpellingRules],
        result: PassResult,
    ) -> list[_Layer]:
        nodes = {n.name or "": n for n in graph}
        layers = []
        for unit in plan.units:
            root, data = nodes[unit.nodes[0]], unit.activations[0]
            known = [r for r in rules.values() if data in r.grids]
            if unit.weight is None or not known:
                continue
            reason = _refusal(root, self.options.most_inputs)
            if reason is None:
                layers.append(
                    _Layer(root, unit, _reading(root, data, known), _cases(unit, plan, known))
                )
            else:
                result.rejects.append(Rejection(unit.nodes[0], reason))
        return layers


@dataclass(frozen=True, slots=True)
class _Case:
    """A spelling, and whether it needs safe pairs in this layer."""

    rules: SpellingRules
    safe: bool


@dataclass(frozen=True, slots=True)
class _Layer:
    root: ir.Node
    unit: QuantUnit
    reading: Reading
    cases: Sequence[_Case]

    @property
    def axis(self) -> int:
        """The output-channel axis of the weight."""
        assert isinstance(self.unit.granularity, PerAxis)
        return self.unit.granularity.axis

    @property
    def weight(self) -> np.ndarray:
        array = constant_of(self.root.inputs[1])
        assert array is not None
        return np.asarray(array, np.float32)


def _refusal(root: ir.Node, most_inputs: int) -> str | None:
    weight = root.inputs[1]
    if root.op_type not in _READERS:
        return f"the inputs of each sum of a {root.op_type} are not looked at"
    array = constant_of(weight)
    if weight is None or array is None:
        return f"its weight {'' if weight is None else weight.name!r} is not a constant"
    if len(weight.uses()) > 1:
        return f"its weight {weight.name!r} also feeds another node"
    inputs = array.size // max(1, array.shape[output_axis(root)])
    if inputs > most_inputs:
        return f"each of its sums has {inputs} inputs, more than {most_inputs}"
    return None


def _reading(root: ir.Node, data: str, rules: Sequence[SpellingRules]) -> Reading:
    array = constant_of(root.inputs[1])
    assert array is not None
    grids = [r.grids[data] for r in rules]
    return Reading(
        data,
        geometry_of(root),
        array.size // array.shape[output_axis(root)],
        low=min(g.low for g in grids),
        high=max(g.high for g in grids),
    )


def _cases(unit: QuantUnit, plan: QuantPlan, rules: Sequence[SpellingRules]) -> list[_Case]:
    return [_Case(r, r.safe_pairs(unit, plan)) for r in rules]


def _round(
    layers: Sequence[_Layer],
    first: Moment,
    second: Moment,
    chosen: dict[str, dict[str, Rounding]],
    result: PassResult,
) -> None:
    """Round the weights of layers that read the same, on the first of two halves."""
    halves = (first.mean(), second.mean())
    reason = _unusable(first, second, halves)
    if reason is not None:
        result.rejects += [Rejection(layer.unit.nodes[0], reason) for layer in layers]
        return
    curvature = curvature_of(halves[0], first.rows)
    for layer in layers:
        for case in layer.cases:
            name, spelling = layer.unit.nodes[0], case.rules.spelling
            rounding = _rounding(layer, case, curvature, halves)
            if rounding is None:
                reason = f"the nearest integers are as good on other samples ({spelling})"
                result.rejects.append(Rejection(name, reason))
            else:
                chosen[spelling][name] = rounding


def _unusable(first: Moment, second: Moment, halves: Sequence[np.ndarray]) -> str | None:
    if not first.rows or not second.rows:
        return "some samples give it nothing to read"
    if not all(np.isfinite(half).all() for half in halves):
        return "what it reads is not finite on some samples"
    return None


def _rounding(
    layer: _Layer, case: _Case, curvature: Curvature, halves: Sequence[np.ndarray]
) -> Rounding | None:
    """Return the integers of the weight, or None when no channel gains on both halves."""
    grid, groups = case.rules.grids[layer.reading.value], layer.reading.geometry.groups
    nearest = quantized_weight(layer.root, layer.unit, grid, case.rules.qmax, safe_pairs=case.safe)
    weight = _columns(layer.weight, layer.axis, groups)
    scales = _candidates(layer, case).reshape(len(_SHARES), groups, -1)
    limits = _limits(layer, case)
    integers, scale, _ = best_rounding(weight, scales, curvature, limits)
    old = _columns(nearest.data.astype(np.float32), layer.axis, groups)
    old_scale = nearest.scale.reshape(groups, -1)
    better = less_wrong(weight, (integers, scale), (old, old_scale), halves)
    if not better.any():
        return None
    data = np.where(better[:, None], integers, old)
    shaped = _like(data, layer.weight, layer.axis).astype(np.int8)
    return Rounding(shaped, np.where(better, scale, old_scale).reshape(-1).astype(np.float32))


def _limits(layer: _Layer, case: _Case) -> Limits:
    weight, axis = layer.weight, layer.axis
    dims = [d for a, d in enumerate(weight.shape) if a != axis]
    pairs = partners(dims) if case.safe else [[]] * layer.reading.inputs
    return Limits(case.rules.qmax, pairs, MOST_SUM)


def _candidates(layer: _Layer, case: _Case) -> np.ndarray:
    """Return scales [candidates, channels], the largest one clipping nothing."""
    weight, axis = layer.weight, layer.axis
    largest = np.abs(np.moveaxis(weight, axis, 0)).reshape(weight.shape[axis], -1).max(axis=1)
    full = np.where(largest > 0, largest / case.rules.qmax, 1.0)
    if case.safe:
        full = np.maximum(full, least_safe_scale(weight, axis))
    least = least_bias_scale(layer.root, layer.unit, case.rules.grids[layer.reading.value])
    shares = np.array(_SHARES)[:, None]
    scales = np.maximum(np.maximum(full * shares, least), _LEAST_SCALE)
    return np.asarray(scales, np.float32)


def _columns(weight: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """Return a weight as [groups, inputs, channels]."""
    rows = np.moveaxis(weight, axis, 0)
    grouped = rows.reshape(groups, len(rows) // groups, -1)
    return np.ascontiguousarray(np.swapaxes(grouped, 1, 2))


def _like(columns: np.ndarray, weight: np.ndarray, axis: int) -> np.ndarray:
    """Undo `_columns`."""
    dims = np.moveaxis(weight, axis, 0).shape
    rows = np.swapaxes(columns, 1, 2).reshape(dims)
    return np.ascontiguousarray(np.moveaxis(rows, 0, axis))
