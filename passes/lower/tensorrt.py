"""Spell the plan for TensorRT: signed, symmetric, Q/DQ on the inputs of units only.

Activations are int8 per tensor with zero point 0; weights are int8 constants with one scale per
output channel; biases stay float, and outputs of units carry no Q/DQ, so that TensorRT fuses each
unit with what reads it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, remove_dead
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.qtypes import PerAxis, QuantUnit
from passes.lower.qdq import QdqWriter
from passes.lower.ranges import calibrated, grids_of, missing_range
from passes.quantize.grid import Grid, signed_grid
from passes.quantize.weights import quantize_weight

__all__ = ["LowerTensorrt"]

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
        spelling = _Spelling(model.graph, grids)
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


class _Spelling:
    def __init__(self, graph: ir.Graph, grids: dict[str, Grid]) -> None:
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
        self._write_weight(nodes[0], unit)
        return [nodes[-1].outputs[0]]

    def _write_weight(self, node: ir.Node, unit: QuantUnit) -> None:
        if not isinstance(unit.granularity, PerAxis):
            return
        weight = node.inputs[1]
        array = constant_of(weight)
        assert weight is not None
        assert array is not None
        quantized = quantize_weight(
            np.asarray(array, np.float32), unit.granularity.axis, _WEIGHT_MAX
        )
        node.replace_input_with(1, self._writer.weight(weight, quantized))
