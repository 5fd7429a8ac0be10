"""Small seeded models that a rewrite can be tried on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def text(body: str) -> ir.Model:
    """A model from onnx text without its head."""
    return ir.from_onnx_text(f"{HEAD} {body}")


def weight(model: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    """Add an initializer, to be wired by name beforehand."""
    tensor = ir.tensor(array, name=name)
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(array.shape),
        const_value=tensor,
    )
    model.graph.register_initializer(value)
    return value


def node(model: ir.Model, name: str) -> ir.Node:
    """The node of that name."""
    return next(n for n in model.graph if n.name == name)


def conv_bn(
    *, groups: int = 1, channels: int = 4, variance: float | None = None, seed: int = 0
) -> ir.Model:
    """x[batch, channels, 6, 6] -> Conv (no bias) -> BatchNormalization -> y."""
    rng = np.random.default_rng(seed)
    x = ir.Value(
        name="x",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape(["batch", channels, 6, 6]),
    )
    shape = (channels, channels // groups, 3, 3)
    arrays = {
        "w": rng.standard_normal(shape).astype(np.float32) * 0.3,
        "gamma": rng.uniform(0.5, 1.5, channels).astype(np.float32),
        "beta": rng.standard_normal(channels).astype(np.float32),
        "mean": rng.standard_normal(channels).astype(np.float32),
        "var": rng.uniform(0.3, 2.0, channels).astype(np.float32),
    }
    if variance is not None:
        arrays["var"][0] = variance
    weights = {n: _initializer(n, a) for n, a in arrays.items()}
    attributes = [ir.AttrInt64s("pads", [1, 1, 1, 1]), ir.AttrInt64("group", groups)]
    conv = ir.Node("", "Conv", [x, weights["w"]], attributes, name="conv")
    conv.outputs[0].name = "c"
    params = [weights[n] for n in ("gamma", "beta", "mean", "var")]
    bn = ir.Node("", "BatchNormalization", [conv.outputs[0], *params], name="bn")
    y = bn.outputs[0]
    y.name, y.type, y.shape = "y", x.type, x.shape
    graph = ir.Graph(
        [x],
        [y],
        nodes=[conv, bn],
        initializers=list(weights.values()),
        opset_imports={"": 21},
        name="conv_bn",
    )
    return ir.Model(graph, ir_version=10)


def _initializer(name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    return ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(array.shape),
        const_value=tensor,
    )
