"""Decide which nodes run in int8; the graph is not touched.

The decisions follow what TensorRT fuses: Q/DQ on every data input of a weighted node and on the
skip branch of a residual Add, none between a weighted node and what joins it, one scale through
operators that hand values on. Attention cores, Softmax, normalizations and arithmetic on raw
features stay in float, since only weighted nodes start a unit.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from optcc.errors import UnsupportedModelError
from optcc.graph.walk import all_graphs
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit
from passes.quantize.growth import Draft, grow_units
from passes.quantize.layers import WEIGHTED, output_axis
from passes.quantize.planning import make_plan

__all__ = ["PlaceQuantization"]

_QUANTIZED_OPS = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "MatMulNBits",
        "QAttention",
        "QEmbedLayerNormalization",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)


class PlaceQuantization:
    """Fill `ctx.plan` with the int8 units of the main graph and a decision per node.

    Keeps: every byte of the graph. Bodies of If, Loop and Scan are left in float, with a decision
    for each weighted node in them.

    Raises:
        UnsupportedModelError: The model is quantized already.
    """

    name = "quantize.place"
    exactness = Exactness.BITWISE
    needs: ClassVar[frozenset[Fact]] = frozenset()
    gives: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Decide; `ctx.plan` holds the result."""
        _refuse_quantized(model)
        drafts, refused = grow_units(model.graph)
        ctx.plan = make_plan(model.graph, [_unit(d) for d in drafts], refused)
        return PassResult(rejects=[Rejection(node, why) for node, why in _rejects(ctx.plan)])


def _refuse_quantized(model: ir.Model) -> None:
    for graph in all_graphs(model.graph):
        for node in graph:
            if node.op_type in _QUANTIZED_OPS:
                raise UnsupportedModelError(
                    f"the model is already quantized: node {node.name!r} is a {node.op_type}",
                    hint="give the float model, or choose --precision fp32",
                    where=node.name,
                )


def _activations(draft: Draft) -> list[ir.Value]:
    values = [draft.root.inputs[0], draft.skip]
    return list(dict.fromkeys(v for v in values if v is not None))


def _unit(draft: Draft) -> QuantUnit:
    weight = draft.root.inputs[1]
    assert weight is not None
    return QuantUnit(
        nodes=tuple(n.name or "" for n in draft.nodes),
        activations=tuple(v.name or "" for v in _activations(draft)),
        output=draft.output.name or "",
        inner=tuple(v.name or "" for v in draft.inner),
        weight=weight.name,
        granularity=PerAxis(output_axis(draft.root)),
    )


def _rejects(plan: QuantPlan) -> list[tuple[str, str]]:
    return [(d.node, d.reason) for d in plan.decisions if d.reason and d.op_type in WEIGHTED]
