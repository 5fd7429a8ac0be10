"""One unit in the spelling that ONNX Runtime's int8 kernels form from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, remove_nodes
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Rewrite
from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit
from passes.lower.cpu_ranges import bounds_of
from passes.lower.qdq import QdqWriter
from passes.lower.weighing import bias_row, quantized_weight, shift_bias
from passes.quantize.grid import Grid
from passes.quantize.weights import QuantizedWeight

__all__ = ["LayerWriter"]

_EIGHT_BITS, _SEVEN_BITS = 127, 64
_BIAS_MAX = float(2**30)


class LayerWriter:
    """Writes units into one graph; producers have to come before their readers.

    Args:
        graph: The graph that is changed.
        plan: Names its values and nodes.
        grids: uint8 grid by value name.
        seven_bits: Keep weights within 7 bits: the AVX2 kernels add pairs of products in int16.
    """

    def __init__(
        self, graph: ir.Graph, plan: QuantPlan, grids: Mapping[str, Grid], *, seven_bits: bool
    ) -> None:
        self._graph, self._grids = graph, grids
        self._nodes = {n.name or "": n for n in graph}
        self._original = _values_by_name(graph)
        self._now: dict[ir.Value, ir.Value] = {}
        self._writer = QdqWriter(graph)
        self._shifts = plan.bias_shifts.get("unsigned", {})
        self._roundings = plan.roundings.get("unsigned", {})
        self._qmax = _SEVEN_BITS if seven_bits else _EIGHT_BITS

    def rewrite_of(self, unit: QuantUnit) -> Rewrite:
        """Describe the region that `write` is going to change."""
        nodes = [self._nodes[n] for n in unit.nodes]
        inputs = tuple(self._current(n) for n in unit.activations)
        what = " + ".join(n.op_type for n in nodes) + " in uint8"
        return Rewrite(unit.nodes[0], what, inputs, (nodes[-1].outputs[0],))

    def write(self, unit: QuantUnit) -> list[ir.Value]:
        """Insert the Q/DQ of `unit` and return the value that now stands for its output."""
        nodes = [self._nodes[n] for n in unit.nodes]
        self._read_narrow(nodes, unit)
        shift = self._shifts.get(unit.nodes[0])
        if shift is not None:
            shift_bias(self._graph, nodes, np.array(shift))
        kind = nodes[0].op_type
        if kind == "Pad" and self._pad_integers(nodes[0], unit):
            return [self._now[self._original[unit.output]]]
        if not isinstance(unit.granularity, PerAxis):
            return [self._give_narrow(nodes[-1].outputs[0])]
        if kind == "Conv":
            return [self._convolution(nodes, unit)]
        if kind == "Gemm":
            return [self._gemm(nodes, unit)]
        if kind == "MatMul":
            return [self._matmul(nodes, unit)]
        self._weigh(nodes[0], unit)
        return [nodes[-1].outputs[0]]

    def _current(self, name: str) -> ir.Value:
        value = self._original[name]
        return self._now.get(value, value)

    def _read_narrow(self, nodes: list[ir.Node], unit: QuantUnit) -> None:
        """Put Q/DQ in front of the unit where the producer has not put them already."""
        wanted = {self._original[n]: self._grids[n] for n in unit.activations}
        for node in nodes:
            for index, value in enumerate(node.inputs):
                if value in wanted:
                    pair = self._writer.pair(value, wanted[value])
                    node.replace_input_with(index, pair)

    def _give_narrow(self, value: ir.Value, stands_for: ir.Value | None = None) -> ir.Value:
        """Put Q/DQ on `value`, for all readers of `stands_for`."""
        old = value if stands_for is None else stands_for
        grid = self._grids[old.name or ""]
        result = self._writer.pair_for_all(value, grid, old)
        self._now[old] = result
        return result

    def _convolution(self, nodes: list[ir.Node], unit: QuantUnit) -> ir.Value:
        root, tail = nodes[0], nodes[-1]
        self._biased(root, unit)
        for name in unit.inner:
            self._give_narrow(self._original[name])
        if tail.op_type == "HardSwish":
            return tail.outputs[0]
        if len(nodes) > 1 and tail.op_type in ("Relu", "Clip"):
            return self._absorb(tail)
        return self._give_narrow(tail.outputs[0])

    def _absorb(self, clip: ir.Node) -> ir.Value:
        """Let the QuantizeLinear behind a Relu or Clip do the clipping, where its grid can."""
        before, after = clip.inputs[0], clip.outputs[0]
        assert before is not None
        grid = self._grids[after.name or ""]
        if not _clips_like(grid, bounds_of(clip)):
            return self._give_narrow(after)
        result = self._give_narrow(before, after)
        remove_nodes(self._graph, [clip])
        return result

    def _pad_integers(self, pad: ir.Node, unit: QuantUnit) -> bool:
        """Pad the integers with the zero point: the runtime forms no such kernel by itself."""
        source = pad.inputs[0]
        dequantize = None if source is None else source.producer()
        if dequantize is None or pad.attributes.get_string("mode", "constant") != "constant":
            return False
        grid = self._grids[unit.output]
        if grid != self._grids[unit.activations[0]]:
            return False
        integers, _, zero = dequantize.inputs[:3]
        pad.replace_input_with(0, integers)
        pad.resize_inputs(max(3, len(pad.inputs)))
        pad.replace_input_with(2, zero)
        output = self._original[unit.output]
        self._now[output] = self._writer.dequantize_for_all(output, dequantize)
        return True

    def _gemm(self, nodes: list[ir.Node], unit: QuantUnit) -> ir.Value:
        self._biased(nodes[0], unit)
        return nodes[-1].outputs[0]

    def _matmul(self, nodes: list[ir.Node], unit: QuantUnit) -> ir.Value:
        self._weigh(nodes[0], unit)
        if len(nodes) > 1 and nodes[1].op_type == "Add":
            self._keep_bias_apart(nodes[0], nodes[1])
        return nodes[-1].outputs[0]

    def _keep_bias_apart(self, matmul: ir.Node, add: ir.Node) -> None:
        """Give the bias as many dims as the product.

        ONNX Runtime makes one float Gemm of MatMul and Add when the bias is a vector, and then the
        int8 kernel does not form.
        """
        index = 1 if add.inputs[0] is matmul.outputs[0] else 0
        bias, rank = add.inputs[index], known_rank(matmul.outputs[0])
        array = constant_of(bias)
        if rank is None or rank < 3 or array is None or bias is None:
            return
        row = np.asarray(array).reshape((1,) * (rank - 1) + (-1,))
        add.replace_input_with(index, add_constant(self._graph, f"{bias.name}.row", row))

    def _weigh(self, root: ir.Node, unit: QuantUnit) -> QuantizedWeight:
        weight = root.inputs[1]
        assert weight is not None
        grid = self._grids[unit.activations[0]]
        planned = self._roundings.get(root.name or "")
        quantized = quantized_weight(root, unit, grid, self._qmax, safe_pairs=True, planned=planned)
        root.replace_input_with(1, self._writer.weight(weight, quantized))
        return quantized

    def _biased(self, root: ir.Node, unit: QuantUnit) -> None:
        """Make weight and bias narrow; the bias is int32 on the grid of the products."""
        row = bias_row(root, unit)
        weight = self._weigh(root, unit)
        if row is None:
            return
        data_scale = np.float32(self._grids[unit.activations[0]].scale)
        scale = (weight.scale * data_scale).astype(np.float32)
        integers = np.clip(np.rint(row / scale.astype(np.float64)), -_BIAS_MAX, _BIAS_MAX)
        root.replace_input_with(
            2, self._writer.bias(f"{root.name}.bias", integers.astype(np.int32), scale)
        )


def _values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {v.name or "": v for v in graph.inputs}
    values.update({v.name or "": v for n in graph for v in n.outputs})
    return values


def _clips_like(grid: Grid, bounds: tuple[float, float]) -> bool:
    """Tell whether the ends of `grid` are within `bounds`, up to half a step."""
    low, high = bounds
    slack = grid.scale / 2
    return grid.low >= low - slack and grid.high <= high + slack
