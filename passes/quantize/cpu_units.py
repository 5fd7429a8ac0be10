"""Units that only ONNX Runtime has int8 kernels for: poolings and elementwise operators.

TensorRT runs these in float and fuses them with their neighbours, so they are no part of the
decisions. On a CPU they would each cost a DequantizeLinear and a QuantizeLinear of a whole map.
"""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.passkit.qtypes import QuantUnit
from passes.quantize.narrow import data_values, hands_on

__all__ = ["cpu_units"]

_POOLS = frozenset({"AveragePool", "GlobalAveragePool"})
_ELEMENTWISE = frozenset({"Add", "Mul"})


def cpu_units(
    graph: ir.Graph, planned: frozenset[str], produced: list[ir.Value], wanted: list[ir.Value]
) -> list[QuantUnit]:
    """Return the further units of `graph`, in graph order.

    Args:
        graph: Topologically sorted.
        planned: Names of nodes that already belong to a unit.
        produced: Values that come out of planned units.
        wanted: Values that planned units read.
    """
    narrow, reached = dict.fromkeys(produced), []
    for node in graph:
        if (node.name or "") not in planned and _has_kernel(node, narrow):
            reached.append(node)
            narrow[node.outputs[0]] = None
    needed, chosen = dict.fromkeys(wanted), []
    for node in reversed(reached):
        if node.op_type in _POOLS or node.outputs[0] in needed:
            chosen.append(node)
            needed.update(dict.fromkeys(_data(node)))
    return [_unit(node) for node in reversed(chosen)]


def _data(node: ir.Node) -> list[ir.Value]:
    if node.op_type in _ELEMENTWISE:
        return [v for v in node.inputs if v is not None]
    return data_values(node)


def _has_kernel(node: ir.Node, narrow: dict[ir.Value, None]) -> bool:
    known = node.domain == "" and (
        node.op_type in _POOLS or node.op_type in _ELEMENTWISE or hands_on(node)
    )
    values = _data(node) if known else []
    return bool(values) and all(v in narrow and not is_constant(v) for v in values)


def _unit(node: ir.Node) -> QuantUnit:
    return QuantUnit(
        nodes=(node.name or "",),
        activations=tuple(dict.fromkeys(v.name or "" for v in _data(node))),
        output=node.outputs[0].name or "",
    )
