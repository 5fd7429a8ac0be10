"""Insert QuantizeLinear and DequantizeLinear nodes, each pair once per value."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, fresh_name
from passes.quantize.grid import Grid
from passes.quantize.weights import QuantizedWeight

__all__ = ["QdqWriter"]

_INTEGERS = {True: ir.DataType.INT8, False: ir.DataType.UINT8}


class QdqWriter:
    """Writes the Q/DQ of one graph.

    New values are named after the value that they serve, so that two runs give the same names.

    Args:
        graph: The graph that is changed.
        mark: Part of the names of new nodes, where one graph has several writers.
    """

    def __init__(self, graph: ir.Graph, mark: str = "") -> None:
        self._graph, self._mark = graph, mark
        self._pairs: dict[ir.Value, ir.Value] = {}
        self._weights: dict[tuple[ir.Value, bytes], ir.Value] = {}
        self._zeros: dict[tuple[str, bytes], ir.Value] = {}

    def pair(self, value: ir.Value, grid: Grid) -> ir.Value:
        """Return the dequantized form of `value`; other readers of `value` keep reading it."""
        if value not in self._pairs:
            self._pairs[value] = self._insert_pair(value, grid)
        return self._pairs[value]

    def has_pair(self, value: ir.Value) -> bool:
        """Tell whether `value` has its Q/DQ already."""
        return value in self._pairs

    def pair_for_all(self, value: ir.Value, grid: Grid, stands_for: ir.Value) -> ir.Value:
        """Put Q/DQ on `value` and let every reader of `stands_for` read the result.

        Args:
            value: The value that is quantized.
            grid: Its grid.
            stands_for: The value whose readers and, where it is a graph output, whose name the
                result takes over: `value` itself, or a later one that becomes superfluous.
        """
        if value in self._pairs:
            return self._pairs[value]
        readers = [(u.node, u.idx) for u in stands_for.uses()]
        result = self._insert_pair(value, grid)
        for node, index in readers:
            node.replace_input_with(index, result)
        if stands_for.is_graph_output():
            self._take_output(stands_for, result)
        self._pairs[value] = self._pairs[stands_for] = result
        return result

    def dequantize_for_all(self, value: ir.Value, like: ir.Node) -> ir.Value:
        """Let `value` hold integers on the grid of `like`; its readers read real numbers again.

        Args:
            value: Its producer was changed to give integers.
            like: The DequantizeLinear whose scale and zero point hold for it.
        """
        readers = [(u.node, u.idx) for u in value.uses()]
        narrow = like.inputs[0]
        assert narrow is not None
        node = self._node(
            "DequantizeLinear",
            [value, *(v for v in like.inputs[1:3] if v is not None)],
            value.name or "",
            "dequantized",
        )
        result = node.outputs[0]
        result.shape = None if value.shape is None else value.shape.copy()
        result.type, value.type = ir.TensorType(ir.DataType.FLOAT), narrow.type
        self._insert_behind(value, [node])
        for reader, index in readers:
            reader.replace_input_with(index, result)
        if value.is_graph_output():
            self._take_output(value, result)
        self._pairs[value] = result
        return result

    def _take_output(self, old: ir.Value, new: ir.Value) -> None:
        name = old.name or ""
        old.name = fresh_name(self._graph, f"{name}.float")
        new.name, new.type = name, ir.TensorType(ir.DataType.FLOAT)
        new.shape = None if old.shape is None else old.shape.copy()
        for index, output in enumerate(self._graph.outputs):
            if output is old:
                self._graph.outputs[index] = new

    def _insert_pair(self, value: ir.Value, grid: Grid) -> ir.Value:
        name = value.name or ""
        scale = add_constant(self._graph, f"{name}.scale", grid.scale_array)
        zero = self._zero_point(grid.zero_point_array)
        quantize = self._node("QuantizeLinear", [value, scale, zero], name, "quantized")
        narrow = quantize.outputs[0]
        narrow.type = ir.TensorType(_INTEGERS[grid.signed])
        dequantize = self._node("DequantizeLinear", [narrow, scale, zero], name, "dequantized")
        result = dequantize.outputs[0]
        result.type = ir.TensorType(ir.DataType.FLOAT)
        for made in (narrow, result):
            made.shape = None if value.shape is None else value.shape.copy()
        self._insert_behind(value, [quantize, dequantize])
        return result

    def _insert_behind(self, value: ir.Value, nodes: list[ir.Node]) -> None:
        producer = value.producer()
        if producer is not None:
            self._graph.insert_after(producer, nodes)
        elif len(self._graph) > 0:
            self._graph.insert_before(self._graph[0], nodes)

    def _node(
        self,
        op_type: str,
        inputs: list[ir.Value],
        served: str,
        suffix: str,
        axis: int | None = None,
    ) -> ir.Node:
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
        node = ir.Node("", op_type, inputs, attributes, name=f"{served}.{self._mark}{op_type}")
        node.outputs[0].name = fresh_name(self._graph, f"{served}.{suffix}")
        return node

    def weight(self, weight: ir.Value, quantized: QuantizedWeight) -> ir.Value:
        """Return `weight` as int8 constant behind a DequantizeLinear, shared where equal."""
        axis, scale = bytes([quantized.axis]), quantized.scale.tobytes()
        key = (weight, axis + scale + hashlib.sha256(quantized.data.tobytes()).digest())
        if key not in self._weights:
            self._weights[key] = self._constant(
                weight.name or "", quantized.data, quantized.scale, quantized.axis
            )
        return self._weights[key]

    def bias(self, name: str, data: np.ndarray, scale: np.ndarray) -> ir.Value:
        """Return an int32 bias behind a DequantizeLinear.

        Args:
            name: What the bias is called.
            data: int32 [channels].
            scale: float32 [channels].
        """
        return self._constant(name, data, scale, 0)

    def _zero_point(self, array: np.ndarray) -> ir.Value:
        """Return a zero point, shared by all that have the same one: small files stay small."""
        key = (f"{array.dtype.name}{array.shape}", array.tobytes())
        if key not in self._zeros:
            mark = array.size if array.ndim else int(array)
            stem = "zero_points" if array.ndim else "zero_point"
            name = f"{stem}.{array.dtype.name}.{mark}"
            self._zeros[key] = add_constant(self._graph, name, array)
        return self._zeros[key]

    def _constant(self, name: str, data: np.ndarray, scale: np.ndarray, axis: int) -> ir.Value:
        inputs = [
            add_constant(self._graph, f"{name}.quantized", data),
            add_constant(self._graph, f"{name}.scale", scale.astype(np.float32)),
            self._zero_point(np.zeros(scale.shape, data.dtype)),
        ]
        dequantize = self._node("DequantizeLinear", inputs, name, "dequantized", axis)
        result = dequantize.outputs[0]
        result.type, result.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(data.shape)
        if len(self._graph) > 0:
            self._graph.insert_before(self._graph[0], dequantize)
        return result
