"""What a model holds and how much it computes, read from shapes alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optcc.graph.io import without_weights
from optcc.graph.settle import settle_shapes
from optcc.graph.shapes import static_dims
from optcc.graph.walk import all_nodes, graphs_of

__all__ = ["ModelCost", "cost_of"]

_GUESS_IMAGE = 224
_GUESS_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """Size and work of one model.

    Attributes:
        operators: Node counts by operator, the most frequent first; nested graphs included.
        parameters: Elements of all initializers and Constant nodes.
        weight_bytes: Bytes of the same.
        flops: Two per multiply-add of Conv, ConvTranspose, MatMul, Gemm and recurrent nodes for one
            run; a branch or loop body counts once. Other nodes count nothing.
        uncounted: Names of such nodes whose shapes are not known.
        assumed: Sizes that were put in for free dims, by input name.
    """

    operators: Mapping[str, int]
    parameters: int
    weight_bytes: int
    flops: int
    uncounted: tuple[str, ...]
    assumed: Mapping[str, tuple[int, ...]]


def cost_of(model: ir.Model, sizes: Mapping[str, tuple[int, ...]] | None = None) -> ModelCost:
    """Count operators, weights and work.

    Args:
        model: It is not changed.
        sizes: Shapes of inputs with free dims; else batch 1 and a guess for the rest.
    """
    fixed = without_weights(model)
    assumed = _fix_inputs(fixed.graph, sizes or {})
    _forget_output_claims(fixed.graph)
    settle_shapes(fixed)
    counts = [(n.name or "", _flops(n)) for n in all_nodes(fixed.graph) if n.op_type in _WORK]
    operators = Counter(_label(n) for n in all_nodes(model.graph))
    weights = _weights(model)
    return ModelCost(
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        parameters=sum(math.prod(t.shape.numpy()) for t in weights),
        weight_bytes=sum(t.nbytes for t in weights),
        flops=sum(count for _, count in counts if count is not None),
        uncounted=tuple(name for name, count in counts if count is None),
        assumed=assumed,
    )


def _label(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _weights(model: ir.Model) -> list[ir.TensorProtocol]:
    found: list[ir.TensorProtocol] = []
    for graph in graphs_of(model):
        found += [t for v in graph.initializers.values() if (t := v.const_value) is not None]
        found += [
            n.attributes["value"].as_tensor()
            for n in graph
            if n.op_type == "Constant" and "value" in n.attributes
        ]
    return found


def _fix_inputs(
    graph: ir.Graph, sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Give free dims a size, the same for the same symbol."""
    assumed: dict[str, tuple[int, ...]] = {}
    symbols: dict[str, int] = {}
    for value in (v for v in graph.inputs if not v.is_initializer() and v.shape is not None):
        assert value.shape is not None
        if value.shape.is_static():
            continue
        given = sizes.get(value.name or "")
        dims = []
        for index, dim in enumerate(value.shape.dims):
            size = dim if isinstance(dim, int) else _guess(index, value.shape.rank())
            if given is not None:
                size = given[index]
            elif not isinstance(dim, int) and dim.value is not None:
                size = symbols.setdefault(dim.value, size)
            dims.append(size)
        value.shape = ir.Shape(dims)
        assumed[value.name or ""] = tuple(dims)
    return assumed


def _forget_output_claims(graph: ir.Graph) -> None:
    """Let what outputs declare be inferred: make them inner values."""
    for index, value in enumerate(list(graph.outputs)):
        carrier = ir.node("Identity", [value], name=f"{value.name}.carrier")
        carrier.outputs[0].name = f"{value.name}.carried"
        graph.append(carrier)
        graph.outputs[index] = carrier.outputs[0]


def _guess(index: int, rank: int) -> int:
    if index == 0:
        return 1
    return _GUESS_IMAGE if rank == 4 else _GUESS_LENGTH


def _flops(node: ir.Node) -> int | None:
    return _WORK[node.op_type](node)


def _conv(node: ir.Node, *, weight: int = 1) -> int | None:
    out, kernel = static_dims(node.outputs[0]), static_dims(node.inputs[weight])
    if out is None or kernel is None:
        return None
    return 2 * math.prod(out) * math.prod(kernel[1:])


def _conv_transpose(node: ir.Node) -> int | None:
    data, kernel = static_dims(node.inputs[0]), static_dims(node.inputs[1])
    if data is None or kernel is None:
        return None
    return 2 * math.prod(data) * math.prod(kernel[1:])


def _matmul(node: ir.Node) -> int | None:
    left, out = static_dims(node.inputs[0]), static_dims(node.outputs[0])
    if not left or out is None:
        return None
    return 2 * math.prod(out) * left[-1]


def _gemm(node: ir.Node) -> int | None:
    left, out = static_dims(node.inputs[0]), static_dims(node.outputs[0])
    if left is None or out is None:
        return None
    return 2 * math.prod(out) * (left[0] if node.attributes.get_int("transA", 0) else left[1])


def _recurrent(node: ir.Node) -> int | None:
    """Input and recurrence weights meet every step of every sequence once."""
    data = static_dims(node.inputs[0])
    weights = [static_dims(v) for v in node.inputs[1:3]]
    if data is None or any(w is None for w in weights):
        return None
    return 2 * data[0] * data[1] * sum(math.prod(w) for w in weights if w is not None)


_WORK: dict[str, Callable[[ir.Node], int | None]] = {
    "Conv": _conv,
    "ConvInteger": _conv,
    "QLinearConv": lambda node: _conv(node, weight=3),
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
