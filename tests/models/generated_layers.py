"""Layers that a generated graph is made of, in the spellings that exporters use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tests.models.maker import Maker

__all__ = ["Image", "activation", "batch_norm", "conv", "gelu", "layer_norm", "linear", "pool"]


@dataclass(frozen=True)
class Image:
    """A value [N, channels, side, side]."""

    value: ir.Value
    channels: int
    side: int


def conv(m: Maker, x: Image, out: int, kernel: int = 3, group: int = 1, *, same=True) -> Image:
    """A convolution with or without bias, stride, dilation, and a Pad of its own before it."""
    dilation = int(m.pick(1, 1, 1, 2)) if kernel > 1 and x.side >= 6 else 1
    stride = 1 if same else int(m.pick(1, 1, 2))
    pad = dilation * (kernel // 2)
    w = m.kernel(out, x.channels // group, kernel, kernel)
    bias = [m.vector(out)] if m.flip() else []
    value, pads = x.value, [pad] * 4
    if pad and m.flip(0.25):
        number = [m.number(float(m.pick(0.0, 0.0, 0.7)))] if m.flip() else []
        value = m.op("Pad", value, m.ints(0, 0, pad, pad, 0, 0, pad, pad), *number)
        pads = [0] * 4
    y = m.op(
        "Conv",
        value,
        w,
        *bias,
        pads=pads,
        group=group,
        strides=[stride] * 2,
        dilations=[dilation] * 2,
    )
    return Image(m.tap(y), out, (x.side - 1) // stride + 1)


def batch_norm(m: Maker, x: ir.Value, channels: int) -> ir.Value:
    """An inference BatchNormalization; its epsilon matters."""
    gamma, beta, mean = m.vector(channels, 0.5, 1.5), m.vector(channels), m.vector(channels)
    var = m.vector(channels, 0.2, 2.0)
    epsilon = float(m.pick(1e-5, 1e-3, 0.05))
    return m.op("BatchNormalization", x, gamma, beta, mean, var, epsilon=epsilon)


def affine(m: Maker, x: ir.Value, channels: int, rank: int) -> ir.Value:
    """Arithmetic with one number per channel, or one number."""
    kind = str(m.pick("Add", "Sub", "Mul", "Div"))
    dims = (channels,) + (1,) * (rank - 2)
    numbers = m.rng.uniform(0.5, 1.5, dims) if m.flip(0.8) else m.rng.uniform(0.5, 1.5, ())
    return m.op(kind, x, m.floats(numbers))


def activation(m: Maker, x: ir.Value) -> ir.Value:
    """One of the activations, some of them decomposed."""
    simple = ("Relu", "Relu", "Sigmoid", "Tanh")
    kind = str(m.pick(*simple, "LeakyRelu", "clip", "max", "hard", "softplus", "silu"))
    if kind in simple:
        return m.op(kind, x)
    if kind == "LeakyRelu" and m.dtype != np.float64:
        return m.op(kind, x, alpha=0.1)
    if kind == "clip":
        low, high = m.number(float(m.pick(0.0, -0.5))), m.number(float(m.pick(6.0, 1.0)))
        return m.op("Clip", x, low, high)
    if kind == "max":
        return m.op("Min", m.op("Max", x, m.number(0.0)), m.number(1.5))
    if kind == "hard" and m.dtype != np.float64:
        inner = m.op("Clip", m.op("Add", x, m.number(3.0)), m.number(0.0), m.number(6.0))
        inner = m.op("Div", inner, m.number(6.0))
        return m.op("Mul", x, inner) if m.flip() else inner
    if kind == "softplus" and m.dtype == np.float32:
        return m.op("Softplus", x)
    return m.op("Mul", x, m.op("Sigmoid", x))


def pool(m: Maker, x: Image) -> Image:
    """A pooling with windows of two, where the image is large enough."""
    if x.side < 4:
        return x
    kind = str(m.pick("MaxPool", "AveragePool"))
    value = m.op(kind, x.value, kernel_shape=[2, 2], strides=[2, 2])
    return Image(m.tap(value), x.channels, x.side // 2)


def linear(m: Maker, x: ir.Value, inputs: int, outputs: int, *, rank: int = 2) -> ir.Value:
    """A product with a weight: Gemm in all its options at rank 2, or MatMul and a bias."""
    if rank == 2 and m.flip(0.6):
        transposed = m.flip()
        dims = (outputs, inputs) if transposed else (inputs, outputs)
        options = {"alpha": 0.5} if m.flip(0.5) else {}
        options |= {"beta": 1.5} if m.flip(0.5) else {}
        bias = [m.vector(outputs)] if m.flip(0.7) else []
        weight = m.kernel(*dims, fan=inputs)
        return m.tap(m.op("Gemm", x, weight, *bias, transB=int(transposed), **options))
    weight = m.kernel(inputs, outputs, fan=inputs)
    y = m.op("MatMul", x, weight)
    if m.flip(0.15):  # a weight with two readers
        scaled = m.op("Mul", m.op("MatMul", m.op("Tanh", x), weight), m.vector(outputs, 0.5, 1.5))
        y = m.op("Add", y, scaled)
    if m.flip(0.2):
        y = m.op("Mul", y, m.vector(outputs, 0.5, 1.5))
    return m.tap(m.op("Add", y, m.vector(outputs)) if m.flip(0.7) else y)


def layer_norm(m: Maker, x: ir.Value, width: int) -> ir.Value:
    """Over the last axis: as the operator, or as exporters decompose it."""
    gamma, beta = m.vector(width, 0.5, 1.5), m.vector(width)
    epsilon = float(m.pick(1e-5, 1e-2))
    if m.flip():
        return m.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)
    axes = m.ints(-1)
    centred = m.op("Sub", x, m.op("ReduceMean", x, axes))
    squared = m.op("Mul", centred, centred)
    if m.flip():
        squared = m.op("Pow", centred, m.number(2.0))
    variance = m.op("ReduceMean", squared, axes)
    spread = m.op("Sqrt", m.op("Add", variance, m.number(epsilon)))
    return m.op("Add", m.op("Mul", m.op("Div", centred, spread), gamma), beta)


def gelu(m: Maker, x: ir.Value) -> ir.Value:
    """With erf, with tanh, or as the operator."""
    kind = str(m.pick("erf", "tanh", *["operator"] * 3)) if m.dtype == np.float32 else "tanh"
    if kind == "operator":
        return m.op("Gelu", x, approximate=str(m.pick("none", "none", "tanh")))
    if kind == "erf":
        inner = m.op("Erf", m.op("Div", x, m.number(np.sqrt(2.0))))
    else:
        cube = m.op("Mul", m.op("Mul", x, x), x)
        total = m.op("Add", x, m.op("Mul", cube, m.number(0.044715)))
        inner = m.op("Tanh", m.op("Mul", total, m.number(np.sqrt(2.0 / np.pi))))
    return m.op("Mul", m.op("Mul", x, m.op("Add", inner, m.number(1.0))), m.number(0.5))
