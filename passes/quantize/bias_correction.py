"""Take the mean error that int8 leaves on each output channel back through the bias.

    e[c] = mean over samples and positions of (w * x - Q(w) * Q(x))[c],    b' = b + e

Rounding errors of weights do not cancel where the data has a mean, and clipped activations are too
small on average. What is left after the bias is the spread of the error, not its mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, fresh_name, remove_dead
from optcc.graph.io import clone
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact, Feed, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import QuantPlan, QuantUnit
from passes.lower.qdq import QdqWriter
from passes.lower.rules import SPELLINGS, SpellingRules, spelling_rules
from passes.lower.weighing import bias_input, quantized_weight
from passes.quantize.relax import some_feeds

__all__ = ["CorrectBias", "CorrectionOptions"]

_LEAST_OPSET = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionOptions:
    """How much data is used.

    Attributes:
        rows: Samples that the mean errors are taken from.
    """

    rows: int = 32


class CorrectBias:
    """Fill `ctx.plan.bias_shifts`; the spellings add them.

    Every unit reads exact data, rounded to its grid. Its correction is estimated on one half of the
    samples, and kept where it makes the squared error of the other half smaller.

    Keeps: every byte of the graph.
    """

    name = "quantize.bias-correction"
    exactness = Exactness.BITWISE
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset()
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def __init__(self, options: CorrectionOptions | None = None) -> None:
        self.options = options or CorrectionOptions()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Measure the mean errors of both spellings."""
        feeds = some_feeds(ctx.samples(), self.options.rows)
        opset = model.graph.opset_imports.get("", 0)
        if ctx.plan is None or ctx.ranges is None or len(feeds) < 2 or opset < _LEAST_OPSET:
            return PassResult()
        spellings = spelling_rules(model.graph, ctx.plan, ctx.ranges, ctx.cpu_class)
        found = _means(_probe(model, ctx.plan, spellings), ctx, feeds)
        result, shifts = PassResult(), {}
        for spelling in spellings:
            first, second = ({n: v[half] for n, v in found[spelling].items()} for half in (0, 1))
            kept = {n: _joined(first[n], second[n]) for n in first if _helps(first[n], second[n])}
            shifts[spelling] = {n: tuple(float(v) for v in kept[n]) for n in sorted(kept)}
            result.rejects += [
                Rejection(n, f"its mean error is not the same on other samples ({spelling})")
                for n in first
                if n not in kept
            ]
        ctx.plan = replace(ctx.plan, bias_shifts=shifts)
        return result


def _probe(model: ir.Model, plan: QuantPlan, spellings: Mapping[str, SpellingRules]) -> ir.Model:
    """Return a copy of `model` whose outputs are the mean errors of the units."""
    copy = clone(model)
    nodes = {n.name or "": n for n in copy.graph}
    outputs = []
    for spelling, settings in spellings.items():
        writer = QdqWriter(copy.graph, f"{spelling}.")
        for unit in plan.units:
            if unit.weight is None or unit.activations[0] not in settings.grids:
                continue
            own = [nodes[n] for n in unit.nodes]
            axes = _averaged(own)
            if axes is None:
                continue
            twin = _twin(copy.graph, writer, own[0], unit, plan, settings)
            mean = _mean_difference(copy.graph, own[0], twin, axes)
            mean.meta["node"], mean.meta["spelling"] = own[0].name, spelling
            outputs.append(mean)
    copy.graph.outputs[:] = outputs
    remove_dead(copy.graph)
    return copy


def _averaged(nodes: list[ir.Node]) -> list[int] | None:
    """Return the axes of the root's result other than the channels; None if it has no bias."""
    root, place = nodes[0], bias_input(nodes)
    if place is None:
        return None
    node, index = place
    if len(node.inputs) > index and node.inputs[index] is not None:
        array = constant_of(node.inputs[index])
        if array is None:
            return None
    weight_rank, rank = known_rank(root.inputs[1]), known_rank(root.outputs[0])
    rank = weight_rank if root.op_type != "MatMul" else rank
    if rank is None:
        return None
    channels = rank - 1 if root.op_type in ("MatMul", "Gemm") else 1
    return [a for a in range(rank) if a != channels]


def _twin(
    graph: ir.Graph,
    writer: QdqWriter,
    root: ir.Node,
    unit: QuantUnit,
    plan: QuantPlan,
    settings: SpellingRules,
) -> ir.Value:
    """Add the int8 form of `root` beside it and return its result."""
    data, weight = root.inputs[0], root.inputs[1]
    assert data is not None
    assert weight is not None
    grid = settings.grids[unit.activations[0]]
    quantized = quantized_weight(
        root,
        unit,
        grid,
        settings.qmax,
        safe_pairs=settings.safe_pairs(unit, plan),
        planned=plan.roundings.get(settings.spelling, {}).get(unit.nodes[0]),
    )
    inputs = [writer.pair(data, grid), writer.weight(weight, quantized), *root.inputs[2:]]
    twin = ir.Node(
        "", root.op_type, inputs, root.attributes.values(), name=f"{root.name}.{settings.spelling}"
    )
    twin.outputs[0].name = fresh_name(graph, f"{root.outputs[0].name}.int8")
    graph.insert_after(root, twin)
    return twin.outputs[0]


def _mean_difference(graph: ir.Graph, root: ir.Node, twin: ir.Value, axes: list[int]) -> ir.Value:
    producer = twin.producer()
    assert producer is not None
    wanted = add_constant(graph, f"{root.name}.axes", np.array(axes, np.int64))
    minus = ir.Node("", "Sub", [root.outputs[0], twin], name=f"{producer.name}.error")
    mean = ir.Node(
        "",
        "ReduceMean",
        [minus.outputs[0], wanted],
        [ir.AttrInt64("keepdims", 0)],
        name=f"{producer.name}.mean_error",
    )
    minus.outputs[0].name = fresh_name(graph, f"{root.name}.error")
    result = mean.outputs[0]
    result.name = fresh_name(graph, f"{root.name}.shift")
    result.type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(producer, [minus, mean])
    return result


def _means(
    probe: ir.Model, ctx: PassContext, feeds: Sequence[Feed]
) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return per spelling and weighted node the mean error over each half of `feeds`."""
    outputs = list(probe.graph.outputs)
    found: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {s: {} for s in SPELLINGS}
    got = ctx.run_all(probe, feeds, [v.name or "" for v in outputs]) if outputs else []
    weights = [max((len(a) for a in f.values() if a.ndim), default=1) for f in feeds]
    for value in outputs:
        rows = [np.asarray(g[value.name or ""], np.float64) for g in got]
        first, second = (
            np.asarray(np.average(rows[half::2], axis=0, weights=weights[half::2]))
            for half in (0, 1)
        )
        found[value.meta["spelling"]][value.meta["node"]] = first, second
    return found


def _helps(first: np.ndarray, second: np.ndarray) -> bool:
    """Tell whether taking the mean `first` away makes the error of the other samples smaller.

    E(e - d)^2 = E e^2 - 2 d E e + d^2: only their mean counts.
    """
    gain = float((2 * first * second - first**2).sum())
    return bool(np.all(np.isfinite(first)) and np.all(np.isfinite(second)) and gain > 0)


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray((first + second) / 2)
