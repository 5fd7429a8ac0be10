"""One weighted node in int8, spelled right or with one planted fault."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

CHANNELS, WIDTH = 32, 64


def quantized(
    op_type: str = "Conv",
    *,
    axis: int | None = None,
    activation_per_channel: bool = False,
    weight_is_float: bool = False,
    activation_is_float: bool = False,
    zero_point: int = 0,
    dims: tuple[int | str, ...] | None = None,
) -> ir.Model:
    """The node is named `heavy`; its right weight axis is taken unless `axis` says another."""
    sketch = Sketch()
    is_conv = op_type.startswith("Conv")
    x = sketch.input("x", dims or ((1, CHANNELS, 8, 8) if is_conv else (4, CHANNELS)))
    scale = np.full(CHANNELS if activation_per_channel else (), 0.02, np.float32)
    narrow = x if activation_is_float else _pair(sketch, x, scale, zero_point)
    shape = (WIDTH, CHANNELS, 3, 3) if op_type == "Conv" else (CHANNELS, WIDTH)
    shape = (CHANNELS, WIDTH, 3, 3) if op_type == "ConvTranspose" else shape
    right = {"Conv": 0, "ConvTranspose": 1}.get(op_type, 1)
    w = _weight(sketch, shape, right if axis is None else axis, weight_is_float)
    y = sketch.op(op_type, narrow, w, name="heavy", to="y")
    rest = (WIDTH, *([10, 10] if op_type == "ConvTranspose" else [6, 6])) if is_conv else (WIDTH,)
    assert x.shape is not None
    sketch.output(y, [x.shape[0], *rest])
    return sketch.model()


def _pair(sketch: Sketch, x: ir.Value, scale: np.ndarray, zero_point: int) -> ir.Value:
    s = sketch.constant("x.scale", scale)
    z = sketch.constant("x.zero", np.full(scale.shape, zero_point, np.int8))
    q = sketch.op("QuantizeLinear", x, s, z, name="x.q", axis=1)
    return sketch.op("DequantizeLinear", q, s, z, name="x.dq", axis=1)


def _weight(sketch: Sketch, shape: tuple[int, ...], axis: int, is_float: bool) -> ir.Value:
    if is_float:
        return sketch.weight("w", *shape)
    data = sketch.constant("w.int8", sketch.rng.integers(-127, 128, shape).astype(np.int8))
    scale = sketch.constant("w.scale", np.full(shape[axis], 0.01, np.float32))
    zero = sketch.constant("w.zero", np.zeros(shape[axis], np.int8))
    return sketch.op("DequantizeLinear", data, scale, zero, name="w.dq", axis=axis)


def small_cnn(batch: int | str = "n") -> ir.Model:
    """Conv + Relu + MaxPool + Flatten + Gemm in float, with a dynamic batch."""
    sketch = Sketch()
    x = sketch.input("x", (batch, 3, 8, 8))
    y = sketch.op("Conv", x, sketch.weight("w1", 16, 3, 3, 3), name="conv", pads=[1, 1, 1, 1])
    y = sketch.op("Relu", y, name="relu")
    y = sketch.op("MaxPool", y, name="pool", kernel_shape=[2, 2], strides=[2, 2])
    y = sketch.op("Flatten", y, name="flatten")
    y = sketch.op("Gemm", y, sketch.weight("w2", 256, 10), name="gemm", to="y")
    sketch.output(y, (batch, 10))
    return sketch.model()


def deep_cnn(layers: int = 30) -> ir.Model:
    """Takes an engine builder several seconds."""
    sketch = Sketch()
    y = sketch.input("x", ("n", 64, 16, 16))
    for k in range(layers):
        y = sketch.op("Conv", y, sketch.weight(f"w{k}", 64, 64, 3, 3), pads=[1, 1, 1, 1])
        y = sketch.op("Sigmoid" if k % 2 else "Tanh", y)
    sketch.output(y, ("n", 64, 16, 16))
    return sketch.model()
