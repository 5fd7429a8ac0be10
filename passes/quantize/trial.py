"""What int8 does to one unit alone: a small model of it, run with exact inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.passkit.qtypes import PerAxis, QuantUnit
from passes.quantize.grid import Grid
from passes.quantize.weights import quantize_weight

__all__ = ["rounded", "sqnr_db", "unit_model"]

_WEIGHT_MAX = 127
_IR_VERSION = 10


def unit_model(graph: ir.Graph, nodes: Sequence[ir.Node], unit: QuantUnit) -> ir.Model:
    """Return the nodes of `unit` as a model of their own, the weight rounded to its integers.

    Its inputs are the activations of the unit, its output that of the unit, by name.
    """
    inputs = [_copy_of(v) for v in _activation_values(nodes, unit)]
    small = ir.Graph(inputs, [], nodes=[], opset_imports=dict(graph.opset_imports), name="unit")
    known = {v.name or "": v for v in inputs}
    for node in nodes:
        read = [None if v is None else _read(small, known, v, unit) for v in node.inputs]
        copy = ir.Node(node.domain, node.op_type, read, node.attributes.values(), num_outputs=1)
        copy.outputs[0].name = node.outputs[0].name
        known[node.outputs[0].name or ""] = copy.outputs[0]
        small.append(copy)
    output = known[unit.output]
    output.type = ir.TensorType(ir.DataType.FLOAT)
    small.outputs.append(output)
    return ir.Model(small, ir_version=_IR_VERSION)


def _activation_values(nodes: Sequence[ir.Node], unit: QuantUnit) -> list[ir.Value]:
    read = [v for n in nodes for v in n.inputs if v is not None and v.name in unit.activations]
    return list(dict.fromkeys(read))


def _copy_of(value: ir.Value) -> ir.Value:
    rank = None if value.shape is None else value.shape.rank()
    shape = None if rank is None else ir.Shape([None] * rank)
    return ir.Value(name=value.name, type=ir.TensorType(ir.DataType.FLOAT), shape=shape)


def _read(
    small: ir.Graph, known: dict[str, ir.Value], value: ir.Value, unit: QuantUnit
) -> ir.Value:
    name = value.name or ""
    if name not in known:
        array = constant_of(value)
        assert array is not None
        if name == unit.weight and isinstance(unit.granularity, PerAxis):
            array = _rounded_weight(array, unit.granularity.axis)
        known[name] = add_constant(small, name, array)
    return known[name]


def _rounded_weight(weight: np.ndarray, axis: int) -> np.ndarray:
    quantized = quantize_weight(np.asarray(weight, np.float32), axis, _WEIGHT_MAX)
    shape = [1] * weight.ndim
    shape[axis] = -1
    return np.asarray(quantized.data * quantized.scale.reshape(shape), np.float32)


def rounded(array: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the values of `grid` nearest to `array`."""
    least, most = grid.integer_bounds
    integers = np.clip(np.rint(array / grid.scale) + grid.zero_point, least, most)
    return np.asarray((integers - grid.zero_point) * grid.scale, np.float32)


def sqnr_db(reference: np.ndarray, got: np.ndarray) -> float | None:
    """Return signal over noise in dB; None where the reference says nothing.

    A reference of zeros, of one constant, or with values that are not finite proves nothing.
    """
    exact = np.asarray(reference, np.float64)
    if exact.size == 0 or not np.all(np.isfinite(exact)) or np.ptp(exact) == 0:
        return None
    noise = float(np.square(exact - got).sum())
    return np.inf if noise == 0 else float(10 * np.log10(np.square(exact).sum() / noise))
