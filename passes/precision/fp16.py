"""Half precision for strongly typed runtimes: the types are in the graph, with Casts between them.

TensorRT has no precision flags; it computes each node in the type that the graph says. Inputs and
outputs of the model stay fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant, remove_dead
from optcc.graph.walk import all_nodes, taken_names
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.qtypes import NodeDecision, QuantPlan
from passes.precision.widths import float_operands, half_constant, widths_of

__all__ = ["PrecisionFp16"]

_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16


class PrecisionFp16:
    """Let each node compute in fp16 where that is safe.

    Keeps: graph inputs and outputs with names, types and shapes; names of nodes and of values in
    fp32. Sums, exponents, roots and what directly follows them stay in fp32, and so does a node
    with a constant that fp16 cannot hold; only the huge negative numbers of an attention mask are
    replaced by smaller ones. Leaves the bodies of If, Loop and Scan alone.
    """

    name = "precision.fp16"
    exactness = Exactness.LOSSY
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.CANONICAL, Fact.SHAPES})
    gives: ClassVar[frozenset[Fact]] = frozenset()
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Insert Casts, convert constants, and record a decision for each node in `ctx.plan`."""
        result, plan = PassResult(), QuantPlan()
        writer = _HalfWriter(model.graph)
        for node, width in list(widths_of(model.graph)):
            narrow, reason = width.narrow, width.reason
            if narrow:
                rewrite = _rewrite_of(node)
                narrow = ctx.apply(rewrite, lambda node=node: writer.narrow(node))  # type: ignore[misc]
                reason = "" if narrow else "rolled back after a failed check"
                if narrow:
                    result.rewrites.append(rewrite)
            if not narrow:
                result.rejects.append(Rejection(node.name or "", reason))
            wanted = "fp16" if narrow else "fp32"
            plan.decisions.append(
                NodeDecision(
                    node=node.name or "", op_type=node.op_type, wanted=wanted, reason=reason
                )
            )
        if ctx.plan is None:
            ctx.plan = plan
        remove_dead(model.graph)
        return result


def _rewrite_of(node: ir.Node) -> Rewrite:
    inputs = tuple(dict.fromkeys(v for v in node.inputs if v is not None and not is_constant(v)))
    return Rewrite(node.name or "", f"{node.op_type} computes in fp16", inputs, tuple(node.outputs))


class _HalfWriter:
    """Makes one node after the other narrow; the graph is valid after each."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._values = taken_names(graph)
        self._nodes = {node.name or "" for node in all_nodes(graph)}
        self._half: dict[ir.Value, ir.Value] = {}

    def narrow(self, node: ir.Node) -> Sequence[ir.Value]:
        """Give `node` fp16 operands and results; returns the fp32 values that stand for these."""
        for index, value in float_operands(node):
            node.replace_input_with(index, self._half_of(value, node))
        return [self._widened(node, v) if v.dtype == _FLOAT else v for v in node.outputs]

    def _half_of(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """Return the fp16 twin of `value`, made before its first reader."""
        if value not in self._half:
            name = _unused(f"{value.name}.fp16", self._values)
            array = constant_of(value)
            self._half[value] = (
                self._constant(name, array)
                if array is not None
                else self._cast_before(reader, value, name)
            )
        return self._half[value]

    def _constant(self, name: str, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(half_constant(np.asarray(array)), name=name)
        half = ir.Value(
            name=name, type=ir.TensorType(_HALF), shape=ir.Shape(array.shape), const_value=tensor
        )
        self._graph.register_initializer(half)
        return half

    def _cast_before(self, reader: ir.Node, value: ir.Value, name: str) -> ir.Value:
        cast = self._cast(value, _HALF, name)
        self._graph.insert_before(reader, cast)
        return cast.outputs[0]

    def _widened(self, node: ir.Node, half: ir.Value) -> ir.Value:
        """Turn the result of `node` into fp16; a Cast carries its old name on for fp32 readers."""
        name, users = half.name or "", half.uses()
        half.name = _unused(f"{name}.fp16", self._values)
        half.type = ir.TensorType(_HALF)
        cast = self._cast(half, _FLOAT, name)
        wide = cast.outputs[0]
        for user, index in users:
            user.replace_input_with(index, wide)
        for index, output in enumerate(self._graph.outputs):
            if output is half:
                self._graph.outputs[index] = wide
        self._graph.insert_after(node, cast)
        self._half[wide] = half
        return wide

    def _cast(self, value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
        output = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
        to = ir.AttrInt64("to", int(dtype))
        node_name = _unused(f"{name}.cast", self._nodes)
        return ir.Node("", "Cast", [value], [to], outputs=[output], name=node_name)


def _unused(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name
