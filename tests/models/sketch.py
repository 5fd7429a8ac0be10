"""Write a small model node by node, with seeded weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.shapes import infer_shapes

FLOAT = ir.DataType.FLOAT


class Sketch:
    """A graph under construction; `model()` ends it.

    Args:
        opset: Of the default domain.
        seed: Of the weights that `weight` draws.
    """

    def __init__(self, opset: int = 21, seed: int = 0) -> None:
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="sketch")
        self.rng = np.random.default_rng(seed)

    def input(
        self, name: str, dims: Sequence[int | str] | None, dtype: ir.DataType = FLOAT
    ) -> ir.Value:
        shape = None if dims is None else ir.Shape(dims)
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)
        self.graph.inputs.append(value)
        return value

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(array, name=name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def weight(self, name: str, *dims: int, dtype: type = np.float32) -> ir.Value:
        return self.constant(name, self.rng.standard_normal(dims).astype(dtype))

    def integers(self, name: str, *numbers: int) -> ir.Value:
        return self.constant(name, np.array(numbers, np.int64))

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        name: str | None = None,
        to: str | Sequence[str] | None = None,
        **attributes: object,
    ) -> ir.Value:
        """Add a node.

        `to` names its outputs, by default `<name>_out`; an attribute `to` is written `to_`.
        """
        name = name or f"{op_type.lower()}{len(self.graph)}"
        names = [to or f"{name}_out"] if to is None or isinstance(to, str) else list(to)
        named = {k.rstrip("_"): v for k, v in attributes.items()}
        attrs = ir.convenience.convert_attributes(named)
        node = ir.Node("", op_type, inputs, attrs, num_outputs=len(names), name=name)
        for value, text in zip(node.outputs, names, strict=True):
            value.name = text
        self.graph.append(node)
        return node.outputs[0]

    def output(
        self, value: ir.Value, dims: Sequence[int | str] | None = None, dtype: ir.DataType = FLOAT
    ) -> None:
        value.type = ir.TensorType(dtype)
        value.shape = None if dims is None else ir.Shape(dims)
        self.graph.outputs.append(value)

    def model(self) -> ir.Model:
        model = ir.Model(self.graph, ir_version=10)
        infer_shapes(model)
        return model
