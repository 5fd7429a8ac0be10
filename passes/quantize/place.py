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
from optcc.passkit.qtypes import NodeDecision, PerAxis, QuantPlan, QuantUnit
from passes.quantize.cpu_units import cpu_units
from passes.quantize.growth import Draft, grow_units
from passes.quantize.layers import WEIGHTED, output_axis
from passes.quantize.narrow import PASS_THROUGH, Scales, data_values, pass_through_nodes

__all__ = ["PlaceQuantization"]

_FLOAT_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
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
_REASONS = {
    "Softmax": "Softmax stays in float",
    "LogSoftmax": "Softmax stays in float",
    "LayerNormalization": "normalizations stay in float",
    "RMSNormalization": "normalizations stay in float",
    "GroupNormalization": "normalizations stay in float",
    "InstanceNormalization": "normalizations stay in float",
    "BatchNormalization": "it was not folded into a layer",
    "AveragePool": "TensorRT averages in float",
    "GlobalAveragePool": "TensorRT averages in float",
}


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
        plan = _make_plan(model.graph, drafts)
        plan.decisions.extend(_decisions(model.graph, plan, refused))
        ctx.plan = plan
        return PassResult(rejects=[Rejection(node, why) for node, why in _rejects(plan)])


def _refuse_quantized(model: ir.Model) -> None:
    for graph in all_graphs(model.graph):
        for node in graph:
            if node.op_type in _QUANTIZED_OPS:
                raise UnsupportedModelError(
                    f"the model is already quantized: node {node.name!r} is a {node.op_type}",
                    hint="give the float model, or choose --precision fp32",
                    where=node.name,
                )


def _make_plan(graph: ir.Graph, drafts: list[Draft]) -> QuantPlan:
    produced = [d.output for d in drafts]
    wanted = [v for d in drafts for v in _activations(d)]
    carriers = pass_through_nodes(graph, produced, wanted)
    units = {d.root: _weighted_unit(d) for d in drafts}
    units.update({n: _carrier_unit(n) for n in carriers})
    plan = QuantPlan(units=[units[n] for n in graph if n in units])
    planned = frozenset(name for unit in plan.units for name in unit.nodes)
    produced += [n.outputs[0] for n in carriers]
    wanted += [v for n in carriers for v in data_values(n)]
    plan.cpu_units.extend(cpu_units(graph, planned, produced, wanted))
    plan.shared_scale.extend(_shared(graph, plan))
    return plan


def _activations(draft: Draft) -> list[ir.Value]:
    values = [draft.root.inputs[0], draft.skip]
    return list(dict.fromkeys(v for v in values if v is not None))


def _weighted_unit(draft: Draft) -> QuantUnit:
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


def _carrier_unit(node: ir.Node) -> QuantUnit:
    values = data_values(node)
    return QuantUnit(
        nodes=(node.name or "",),
        activations=tuple(dict.fromkeys(v.name or "" for v in values)),
        output=node.outputs[0].name or "",
    )


def _shared(graph: ir.Graph, plan: QuantPlan) -> list[tuple[str, ...]]:
    """Join the scales around each operator that hands values on."""
    operators = {n.name or "": n.op_type for n in graph}
    scales = Scales()
    for unit in (*plan.units, *plan.cpu_units):
        if unit.weight is None and operators[unit.nodes[0]] in PASS_THROUGH:
            scales.join((*unit.activations, unit.output))
    return scales.groups()


def _decisions(graph: ir.Graph, plan: QuantPlan, refused: dict[str, str]) -> list[NodeDecision]:
    narrow = frozenset(name for unit in plan.units for name in unit.nodes)
    decisions = []
    for node in graph:
        name = node.name or ""
        if name in narrow:
            decisions.append(NodeDecision(node=name, op_type=node.op_type, wanted="int8"))
        elif _computes(node):
            reason = refused.get(name) or _float_reason(node)
            decisions.append(_float_decision(node, reason))
    return decisions + [_float_decision(n, _INSIDE) for n in _nested_layers(graph)]


_INSIDE = "it is inside a subgraph (If, Loop or Scan body)"


def _float_decision(node: ir.Node, reason: str) -> NodeDecision:
    return NodeDecision(node=node.name or "", op_type=node.op_type, wanted="fp32", reason=reason)


def _computes(node: ir.Node) -> bool:
    return any(v.dtype in _FLOAT_TYPES for v in node.outputs) or node.op_type in WEIGHTED


def _float_reason(node: ir.Node) -> str:
    if node.op_type in PASS_THROUGH:
        return "the data around it is float"
    return _REASONS.get(node.op_type, f"{node.op_type} is no part of an int8 layer")


def _nested_layers(graph: ir.Graph) -> list[ir.Node]:
    inner = [g for g in all_graphs(graph) if g is not graph]
    return [n for g in inner for n in g if n.domain == "" and n.op_type in WEIGHTED]


def _rejects(plan: QuantPlan) -> list[tuple[str, str]]:
    return [(d.node, d.reason) for d in plan.decisions if d.reason and d.op_type in WEIGHTED]
