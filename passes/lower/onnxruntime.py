"""Spell the plan for ONNX Runtime's CPU kernels: unsigned activations, Q/DQ on outputs too.

Its int8 kernels form only from DequantizeLinear -> operator -> QuantizeLinear, with uint8
activations and an int32 bias. A Relu or Clip in front of a QuantizeLinear disappears, because the
unsigned range ends where they clip. MatMul and Gemm may give float, so their outputs carry Q/DQ
only where the next unit wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import onnx_ir as ir

from optcc.graph.edit import remove_dead
from optcc.graph.io import clone
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import QuantPlan, QuantUnit, RangeTable
from passes.lower.cpu_layers import LayerWriter
from passes.lower.cpu_ranges import unsigned_grids
from passes.lower.ranges import calibrated, missing_range

__all__ = ["LowerOnnxruntime", "spelled_unsigned"]

_SEVEN_BITS = "avx2"


class LowerOnnxruntime:
    """Write `ctx.plan` with the ranges of `ctx.ranges.unsigned` as ONNX Runtime's CPU fuses it.

    Keeps: names, types and shapes of graph inputs and outputs. Subgraphs hold no units.

    Raises:
        ConfigError: Placement or calibration did not run.
    """

    name = "lower.onnxruntime"
    exactness = Exactness.LOSSY
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset({Fact.QUANTIZED})
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Insert the Q/DQ of every unit, those for this runtime only included."""
        plan, ranges = calibrated(ctx, self.name)
        grids = unsigned_grids(model.graph, plan, ranges.unsigned)
        writer = LayerWriter(model.graph, plan, grids, seven_bits=ctx.cpu_class == _SEVEN_BITS)
        result = PassResult()
        for unit in _in_order(model.graph, plan):
            reason = missing_range(unit, _needed(unit), grids)
            if reason is not None:
                result.rejects.append(Rejection(unit.nodes[0], reason))
                continue
            rewrite = writer.rewrite_of(unit)
            if ctx.apply(rewrite, _action(writer, unit)):
                result.rewrites.append(rewrite)
        remove_dead(model.graph)
        return result


def spelled_unsigned(
    model: ir.Model, plan: QuantPlan, ranges: RangeTable, cpu_class: str
) -> ir.Model:
    """Return a copy of `model` in this spelling, for a pass that wants to know its error."""
    copy = clone(model)
    grids = unsigned_grids(copy.graph, plan, ranges.unsigned)
    writer = LayerWriter(copy.graph, plan, grids, seven_bits=cpu_class == _SEVEN_BITS)
    for unit in _in_order(copy.graph, plan):
        if missing_range(unit, _needed(unit), grids) is None:
            writer.write(unit)
    remove_dead(copy.graph)
    return copy


def _action(writer: LayerWriter, unit: QuantUnit) -> Callable[[], list[ir.Value]]:
    return lambda: writer.write(unit)


def _in_order(graph: ir.Graph, plan: QuantPlan) -> list[QuantUnit]:
    position = {node.name or "": k for k, node in enumerate(graph)}
    return sorted((*plan.units, *plan.cpu_units), key=lambda u: position[u.nodes[-1]])


def _needed(unit: QuantUnit) -> tuple[str, ...]:
    return (*unit.activations, *unit.inner, unit.output)
