"""Kinds of generated graphs; each takes a maker and returns the finished model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tests.models.generated_layers import (
    Image,
    activation,
    affine,
    batch_norm,
    conv,
    gelu,
    layer_norm,
    linear,
    pool,
)
from tests.models.maker import Maker

__all__ = ["KINDS"]


def _batch(m: Maker) -> int | str:
    return "N" if m.flip(0.8) else 2


def _image(m: Maker) -> Image:
    channels, side = m.size(2, 4), m.size(5, 8)
    return Image(m.feed([_batch(m), channels, side, side]), channels, side)


def _unit(m: Maker, x: Image, out: int, kernel: int = 3, group: int = 1) -> Image:
    """Conv, then what is usually behind it."""
    y = conv(m, x, out, kernel, group)
    value = y.value
    if m.flip(0.6):
        value = batch_norm(m, value, out)
    if m.flip(0.25):
        value = affine(m, value, out, 4)
    return Image(m.tap(value), y.channels, y.side)


def _head(m: Maker, x: Image) -> ir.Value:
    """Pool or flatten, then a classifier."""
    if m.flip():
        flat = m.op("Flatten", m.op("GlobalAveragePool", x.value))
        y = linear(m, flat, x.channels, 5)
    else:
        width = x.channels * x.side * x.side
        y = linear(m, m.op("Reshape", x.value, m.ints(-1, width)), width, 5)
    return m.op("Softmax", y, axis=-1) if m.flip(0.3) else y


def cnn(m: Maker) -> ir.Model:
    """A plain stack of convolutions."""
    x = _image(m)
    for _ in range(m.size(1, 2)):
        y = conv(m, x, m.size(2, 6), int(m.pick(1, 3)), same=False)
        value = batch_norm(m, y.value, y.channels) if m.flip() else y.value
        x = pool(m, Image(activation(m, value), y.channels, y.side))
    if m.flip(0.25):
        w = m.kernel(x.channels, 3, 2, 2, fan=x.channels)
        up = m.op("ConvTranspose", x.value, w, *([m.vector(3)] if m.flip() else []))
        return m.finish(affine(m, batch_norm(m, up, 3), 3, 4))
    return m.finish(_head(m, x))


def residual(m: Maker) -> ir.Model:
    """Two convolutions and a skip."""
    x = _image(m)
    stem = _unit(m, x, m.size(3, 5))
    stem = Image(activation(m, stem.value), stem.channels, stem.side)
    inner = _unit(m, stem, stem.channels)
    body = _unit(m, Image(activation(m, inner.value), inner.channels, inner.side), stem.channels)
    total = activation(m, m.op("Add", body.value, stem.value))
    return m.finish(_head(m, Image(m.tap(total), stem.channels, stem.side)))


def depthwise(m: Maker) -> ir.Model:
    """Pointwise, depthwise, pointwise, with a skip where the sizes allow."""
    x = _image(m)
    wide = _unit(m, x, x.channels * 2, kernel=1)
    wide = Image(m.op("Clip", wide.value, m.number(0.0), m.number(6.0)), wide.channels, wide.side)
    deep = _unit(m, wide, wide.channels, group=wide.channels)
    deep = Image(activation(m, deep.value), deep.channels, deep.side)
    y = _unit(m, deep, x.channels, kernel=1)
    value = m.op("Add", y.value, x.value) if m.flip(0.7) else y.value
    return m.finish(_head(m, Image(value, y.channels, y.side)))


def mlp(m: Maker) -> ir.Model:
    """Products of rank 2, norms, and parts that are split and joined again."""
    width = m.size(4, 8)
    x = m.feed([_batch(m), width])
    for _ in range(m.size(1, 3)):
        out = 2 * m.size(2, 5)
        x = linear(m, x, width, out)
        if m.flip(0.4):
            x = batch_norm(m, x, out)
        elif m.flip(0.6):
            x = affine(m, x, out, 2)
        x, width = activation(m, x), out
    if m.flip(0.6):
        left = m.size(1, width - 1)
        parts = m.several(2, "Split", x, m.ints(left, width - left), axis=1)
        x = m.op("Concat", m.op("Tanh", parts[1]), parts[0], axis=1)
    if m.flip(0.4):
        x = m.op("Where", m.op("Greater", x, m.number(0.1)), x, m.op("Neg", x))
    return m.finish(linear(m, x, width, 3))


def transformer(m: Maker) -> ir.Model:
    """One encoder layer over [N, length, width]."""
    heads, depth, length = m.size(1, 3), m.size(2, 4), m.size(3, 6)
    width = heads * depth
    x = m.feed([_batch(m), length, width])
    source = layer_norm(m, x, width)
    others = m.op("Tanh", x) if m.flip(0.25) else source

    def split(value: ir.Value) -> ir.Value:
        y = linear(m, value, width, width, rank=3)
        y = m.op("Reshape", y, m.ints(0, length, heads, depth))
        return m.op("Transpose", y, perm=[0, 2, 1, 3])

    q, k, v = split(source), split(others), split(others)
    scores = m.op("MatMul", q, m.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = m.op("Div", scores, m.number(np.sqrt(depth)))
    if m.flip(0.6):
        mask = np.triu(np.full((length, length), -1e4), 1)
        scores = m.op("Add", scores, m.floats(mask))
    mixed = m.op("MatMul", m.op("Softmax", m.tap(scores), axis=-1), v)
    back = m.op("Reshape", m.op("Transpose", mixed, perm=[0, 2, 1, 3]), m.ints(0, 0, width))
    x = m.tap(m.op("Add", linear(m, back, width, width, rank=3), x))
    hidden = linear(m, layer_norm(m, x, width), width, 2 * width, rank=3)
    y = linear(m, gelu(m, hidden), 2 * width, width, rank=3)
    return m.finish(m.op("Add", y, x))


def shapes(m: Maker) -> ir.Model:
    """Arithmetic on shapes, data that is moved about, sums, and numbers that are constant."""
    rows, columns = m.size(2, 4), m.size(3, 6)
    x = m.op(str(m.pick("Tanh", "Neg", "Abs")), m.feed([_batch(m), rows, columns]))
    batch = m.op("Gather", m.op("Shape", x), m.ints(0))
    target = m.op("Concat", batch, m.ints(-1), axis=0)
    flat = m.tap(m.op("Reshape", x, target))
    if m.flip(0.7):
        first = m.op("Transpose", x, perm=list(m.pick([0, 2, 1], [1, 0, 2], [2, 0, 1])))
        x = m.op("Transpose", first, perm=list(m.pick([0, 2, 1], [1, 2, 0], [1, 0, 2])))
        x = m.op("Sigmoid", m.tap(x))
    sums = m.op(str(m.pick("ReduceSum", "ReduceMean", "ReduceMax")), flat, m.ints(1))
    scale = m.op("Add", m.op("Mul", m.vector(rows * columns), m.number(1.5)), m.number(0.25))
    flat = m.op("Mul", flat, scale)
    if m.flip():
        flat = m.op(
            "Gather", flat, m.ints(*(m.size(0, rows * columns - 1) for _ in range(4))), axis=1
        )
    else:
        start = m.size(0, 2)
        flat = m.op("Slice", flat, m.ints(start), m.ints(start + 3), m.ints(1))
    if m.flip():
        whole = m.op("Cast", m.op("Mul", flat, m.number(4.0)), to_=int(ir.DataType.INT64))
        flat = m.op("Add", m.op("Cast", whole, to_=int(m.type)), flat)
    if m.flip(0.4):  # much alike, and not the same
        low, high = (m.op("Clip", flat, m.number(-k), m.number(k)) for k in (0.4, 0.9))
        flat = m.op("Mul", low, m.op("Add", high, m.number(2.0)))
    twice = m.op("Add", m.op("Exp", flat), m.op("Exp", flat)) if m.flip() else flat
    return m.finish(m.op("Sub", m.tap(twice), sums), x)


def branches(m: Maker) -> ir.Model:
    """An If whose branches compute with weights of their own and with outer values."""
    width = m.size(4, 6)
    x = m.feed([_batch(m), width])
    condition = m.input("c", [], ir.DataType.BOOL)
    outer = m.tap(activation(m, linear(m, x, width, width)))

    def one() -> ir.Value:
        return activation(m, linear(m, outer, width, width))

    def two() -> ir.Value:
        y = m.op("Add", m.op("MatMul", x, m.kernel(width, width)), outer)
        return batch_norm(m, y, width) if m.flip() else affine(m, y, width, 2)

    y = m.op("If", condition, then_branch=m.branch(one), else_branch=m.branch(two))
    y.type = ir.TensorType(m.type)
    return m.finish(linear(m, y, width, 3))


FULL, HALF, DOUBLE = "float32", "float16", "float64"
KINDS: dict[str, tuple[Callable[[Maker], ir.Model], tuple[str, ...]]] = {
    "cnn": (cnn, (FULL, FULL, FULL, FULL, HALF)),
    "residual": (residual, (FULL, FULL, FULL, FULL, HALF)),
    "depthwise": (depthwise, (FULL, FULL, FULL, FULL, HALF)),
    "mlp": (mlp, (FULL, FULL, FULL, HALF, DOUBLE)),
    "transformer": (transformer, (FULL, FULL, FULL, HALF, DOUBLE)),
    "shapes": (shapes, (FULL, FULL, FULL, HALF, DOUBLE)),
    "branches": (branches, (FULL, FULL, FULL, DOUBLE)),
}
"""Each kind with the float types it is drawn in; a type that occurs twice is twice as likely.

The runtime has no double kernels for convolutions on a CPU.
"""
