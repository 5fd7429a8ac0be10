"""Make a plan of chosen weighted units: what stays narrow around them, and a decision per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from optcc.graph.walk import all_graphs
from optcc.passkit.qtypes import NodeDecision, QuantPlan, QuantUnit
from passes.quantize.cpu_units import cpu_units
from passes.quantize.layers import WEIGHTED
from passes.quantize.narrow import PASS_THROUGH, Scales, data_values, pass_through_nodes

__all__ = ["make_plan", "without_units"]

_FLOAT_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
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
_INSIDE = "it is inside a subgraph (If, Loop or Scan body)"


def make_plan(
    graph: ir.Graph, weighted: Sequence[QuantUnit], refused: Mapping[str, str]
) -> QuantPlan:
    """Return the plan that runs the `weighted` units in int8, and what hands their data on.

    Args:
        graph: Topologically sorted.
        weighted: Units that start with a weighted node.
        refused: Per other weighted node why it stays in float.
    """
    values = _values_by_name(graph)
    produced = [values[u.output] for u in weighted]
    wanted = [values[n] for u in weighted for n in u.activations]
    carriers = pass_through_nodes(graph, produced, wanted)
    units = {u.nodes[0]: u for u in (*weighted, *map(_carrier_unit, carriers))}
    plan = QuantPlan(units=[units[n.name or ""] for n in graph if n.name in units])
    planned = frozenset(name for unit in plan.units for name in unit.nodes)
    produced += [n.outputs[0] for n in carriers]
    wanted += [v for n in carriers for v in data_values(n)]
    plan.cpu_units.extend(cpu_units(graph, planned, produced, wanted))
    plan.shared_scale.extend(_shared(graph, plan))
    plan.decisions.extend(_decisions(graph, plan, refused))
    return plan


def without_units(graph: ir.Graph, plan: QuantPlan, dropped: Mapping[str, str]) -> QuantPlan:
    """Return `plan` less some units; what only they made narrow is float again.

    Args:
        graph: That the plan was made for.
        plan: It is not changed.
        dropped: Per weighted node of a unit the reason why it goes.
    """
    kept = [u for u in plan.units if u.weight is not None and u.nodes[0] not in dropped]
    inner = {n.name for n in _nested_layers(graph)}
    refused = {d.node: d.reason for d in plan.decisions if d.op_type in WEIGHTED and d.reason}
    outer = {n: why for n, why in refused.items() if n not in inner}
    fewer = make_plan(graph, kept, outer | dict(dropped))
    roots = {u.nodes[0] for u in kept}
    shifts = {s: {n: a for n, a in of.items() if n in roots} for s, of in plan.bias_shifts.items()}
    roundings = {s: {n: r for n, r in of.items() if n in roots} for s, of in plan.roundings.items()}
    return replace(fewer, bias_shifts=shifts, roundings=roundings)


def _values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {v.name or "": v for v in graph.inputs}
    values.update({v.name or "": v for n in graph for v in n.outputs})
    return values


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


def _decisions(graph: ir.Graph, plan: QuantPlan, refused: Mapping[str, str]) -> list[NodeDecision]:
    narrow = frozenset(unit.nodes[0] for unit in plan.units)
    joined = {name: unit.nodes[0] for unit in plan.units for name in unit.nodes[1:]}
    decisions = []
    for node in graph:
        name = node.name or ""
        if name in narrow:
            decisions.append(NodeDecision(node=name, op_type=node.op_type, wanted="int8"))
        elif name in joined:
            reason = f"part of the int8 unit of {joined[name]!r}"
            decisions.append(_float_decision(node, reason))
        elif _computes(node):
            reason = refused.get(name) or _float_reason(node)
            decisions.append(_float_decision(node, reason))
    return decisions + [_float_decision(n, _INSIDE) for n in _nested_layers(graph)]


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
