"""MatMul with the Add of its bias, and Gemm, as one thing: data @ weight + bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, is_constant
from optcc.graph.shapes import known_rank, static_dims
from optcc.passkit.rewrite import Reject, drop_unused_constants, refuse
from passes.fuse.channels import per_channel
from passes.fuse.columns import column_bias

__all__ = ["Linear", "linear_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A product of data with a constant weight.

    Attributes:
        product: MatMul or Gemm.
        adder: The Add behind a MatMul that adds a constant per column.
        adder_index: Which operand of it is that constant.
    """

    product: ir.Node
    adder: ir.Node | None = None
    adder_index: int = 0

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Its nodes in order."""
        return (self.product,) if self.adder is None else (self.product, self.adder)

    @property
    def output(self) -> ir.Value:
        """The value that leaves it."""
        return self.nodes[-1].outputs[0]

    @property
    def alpha(self) -> float:
        """The factor of a Gemm before its product."""
        is_gemm = self.product.op_type == "Gemm"
        return self.product.attributes.get_float("alpha", 1.0) if is_gemm else 1.0

    @property
    def weight(self) -> ir.Value:
        """[K, N], or [N, K] where `transB` says so."""
        weight = self.product.inputs[1]
        assert weight is not None
        return weight

    def weight_array(self) -> np.ndarray:
        """Read the weight as it is stored."""
        array = constant_of(self.weight)
        assert array is not None
        return array

    def inputs_first(self, array: np.ndarray) -> np.ndarray:
        """Turn a stored weight into [K, N], or such an array into one to store."""
        is_gemm = self.product.op_type == "Gemm"
        turned = is_gemm and bool(self.product.attributes.get_int("transB", 0))
        return np.ascontiguousarray(array.T) if turned else array

    def bias_array(self) -> np.ndarray:
        """Return what is added to the product, as [N] in float64.

        Raises:
            Reject: There is nothing that could hold a bias, or it is not one number per column.
        """
        columns = self.inputs_first(self.weight_array()).shape[1]
        if self.product.op_type == "Gemm":
            c = self.product.inputs[2] if len(self.product.inputs) > 2 else None
            refuse(c is not None and not is_constant(c), f"{self.product.name!r} computes its bias")
            return column_bias(self.product, constant_of(c), columns)
        if self.adder is None:
            raise Reject(f"{self.product.name!r} has no bias that could take the one before it")
        array = constant_of(self.adder.inputs[self.adder_index])
        assert array is not None
        return np.broadcast_to(array.reshape(-1).astype(np.float64), (columns,))

    def write(self, graph: ir.Graph, weight: np.ndarray, bias: np.ndarray | None) -> None:
        """Give it other numbers; without `bias` that stays as it is."""
        name = self.product.outputs[0].name
        self._replace(self.product, 1, add_constant(graph, f"{name}.weight", weight))
        if bias is None:
            return
        value = add_constant(graph, f"{self.output.name}.bias", bias)
        if self.adder is not None:
            self._replace(self.adder, self.adder_index, value)
            return
        self.product.resize_inputs(3)
        self._replace(self.product, 2, value)
        self.product.attributes.pop("beta", None)

    def _replace(self, node: ir.Node, index: int, value: ir.Value) -> None:
        old = node.inputs[index]
        node.replace_input_with(index, value)
        drop_unused_constants([old])


def linear_of(node: ir.Node, index: int, depth: int) -> Linear:
    """Return `node` as a product of its operand `index` with a weight that may be changed.

    Args:
        node: Any reader of a value.
        index: Of that value among its inputs.
        depth: Size of the last axis of that value.

    Raises:
        Reject: It is no such product, or its weight is not a constant of its own.
    """
    is_product = node.op_type in ("MatMul", "Gemm") and node.domain == "" and index == 0
    refuse(not is_product, f"{node.name!r} reads it too, which is no matrix product from the left")
    turned = node.op_type == "Gemm" and bool(node.attributes.get_int("transA", 0))
    refuse(turned, f"{node.name!r} transposes its data")
    weight = node.inputs[1]
    assert weight is not None
    refuse(not is_constant(weight), f"the weight of {node.name!r} is not a constant")
    shared = len(weight.uses()) > 1 or weight.is_graph_output()
    refuse(shared, f"weight {weight.name!r} also feeds another node")
    refuse(known_rank(weight) != 2, f"weight {weight.name!r} is not of rank 2")
    linear = Linear(node)
    dims = linear.inputs_first(np.empty(static_dims(weight) or (0, 0), np.int8)).shape
    refuse(dims[0] != depth, f"weight {weight.name!r} has {dims[0]} rows, not {depth}")
    return linear if node.op_type == "Gemm" else _with_adder(linear, dims[1])


def _with_adder(linear: Linear, columns: int) -> Linear:
    product = linear.output
    uses = list(product.uses())
    if product.is_graph_output() or len(uses) != 1:
        return linear
    adder, index = uses[0].node, 1 - uses[0].idx
    if adder.op_type != "Add" or adder.domain != "" or adder.graph is not linear.product.graph:
        return linear
    constant = adder.inputs[index]
    rank = known_rank(product)
    array = None if constant is None else constant_of(constant)
    if array is None or rank is None or per_channel(array, rank, rank - 1, columns) is None:
        return linear
    return Linear(linear.product, adder, index)
