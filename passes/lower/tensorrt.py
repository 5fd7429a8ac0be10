"""Spell the plan for TensorRT: signed, symmetric, Q/DQ on the inputs of units only.

Activations are int8 per tensor with zero point 0; weights are int8 constants with one scale per
output channel; biases stay float, and outputs of units carry no Q/DQ, so that TensorRT fuses each
unit with what reads it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import remove_dead
from optcc.graph.io import clone
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit, RangeTable
from passes.lower.qdq import QdqWriter
from passes.lower.ranges import calibrated, grids_of, missing_range
from passes.lower.weighing import quantized_weight, shift_bias
from passes.quantize.grid import Grid, signed_grid

__all__ = ["LowerTensorrt", "is_read_narrow", "spelled_signed"]

_WEIGHT_MAX = 127


class LowerTensorrt:
    """Write `ctx.plan` with the ranges of `ctx.ranges.signed` as TensorRT reads Q/DQ.

    Keeps: graph inputs and outputs, and every float node. Subgraphs hold no units.

    Raises:
        ConfigError: Placement or calibration did not run.
    """

    name = "lower.tensorrt"
    exactness = Exactness.LOSSY
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset({Fact.QUANTIZED})
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Insert the Q/DQ of every unit."""
        plan, ranges = calibrated(ctx, self.name)
        grids = grids_of(plan.observed(), ranges.signed, plan.shared_scale, signed_grid)
        spelling = _Spelling(model.graph, plan, grids)
        result = PassResult()
        for unit in plan.units:
            reason = missing_range(unit, unit.activations, grids)
            if reason is not None:
                result.rejects.append(Rejection(unit.nodes[0], reason))
                continue
            rewrite = spelling.rewrite_of(unit)
            if ctx.apply(rewrite, lambda unit=unit: spelling.write(unit)):  # type: ignore[misc]
                result.rewrites.append(rewrite)
        remove_dead(model.graph)
        return result


def spelled_signed(model: ir.Model, plan: QuantPlan, ranges: RangeTable) -> ir.Model:
    """Return a copy of `model` in this spelling, for a pass that wants to know its error."""
    copy = clone(model)
    grids = grids_of(plan.observed(), ranges.signed, plan.shared_scale, signed_grid)
    spelling = _Spelling(copy.graph, plan, grids)
    for unit in plan.units:
        if missing_range(unit, unit.activations, grids) is None:
            spelling.write(unit)
    remove_dead(copy.graph)
    return copy


def is_read_narrow(unit: QuantUnit, plan: QuantPlan) -> bool:
    """Tell whether ONNX Runtime runs a unit in int8 even in this spelling.

    It does so with a lone convolution whose result is quantized at once. On a CPU without VNNI that
    kernel adds pairs of products in 16 bits; all other units run in float there and keep their
    finer scales.
    """
    alone = len(unit.nodes) == 1 and unit.granularity == PerAxis(0)
    return alone and any(unit.output in u.activations for u in plan.units)


class _Spelling:
    def __init__(self, graph: ir.Graph, plan: QuantPlan, grids: dict[str, Grid]) -> None:
        self._graph = graph
        self._plan = plan
        self._shifts = plan.bias_shifts.get("signed", {})
        self._roundings = plan.roundings.get("signed", {})
        self._nodes = {n.name or "": n for n in graph}
        self._grids = grids
        self._writer = QdqWriter(graph)

    def rewrite_of(self, unit: QuantUnit) -> Rewrite:
        nodes = [self._nodes[n] for n in unit.nodes]
        read = [v for n in nodes for v in n.inputs if v is not None]
        inputs = tuple(dict.fromkeys(v for v in read if v.name in unit.activations))
        what = " + ".join(n.op_type for n in nodes) + " reads int8"
        return Rewrite(unit.nodes[0], what, inputs, (nodes[-1].outputs[0],))

    def write(self, unit: QuantUnit) -> list[ir.Value]:
        nodes = [self._nodes[n] for n in unit.nodes]
        for node in nodes:
            for index, value in enumerate(node.inputs):
                if value is not None and value.name in unit.activations:
                    pair = self._writer.pair(value, self._grids[value.name])
                    node.replace_input_with(index, pair)
        shift = self._shifts.get(unit.nodes[0])
        if shift is not None:
            shift_bias(self._graph, nodes, np.array(shift))
        self._write_weight(nodes[0], unit)
        return [nodes[-1].outputs[0]]

    def _write_weight(self, node: ir.Node, unit: QuantUnit) -> None:
        if not isinstance(unit.granularity, PerAxis):
            return
        weight = node.inputs[1]
        assert weight is not None
        quantized = quantized_weight(
            node,
            unit,
            self._grids[unit.activations[0]],
            _WEIGHT_MAX,
            safe_pairs=is_read_narrow(unit, self._plan),
            planned=self._roundings.get(node.name or ""),
        )
        node.replace_input_with(1, self._writer.weight(weight, quantized))
