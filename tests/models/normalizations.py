"""The ways in which exporters write layer and root-mean-square normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

DTYPES = {np.float32: ir.DataType.FLOAT, np.float16: ir.DataType.FLOAT16}

OverRoot = Callable[["Writer", ir.Value, ir.Value], ir.Value]


@dataclass
class Writer:
    """Writes means, squares and roots; constants are of `dtype`.

    Attributes:
        axes: Of all means; None leaves them out.
        as_attribute: Write them as opset 17 does.
        late: Add epsilon to the root instead.
    """

    s: Sketch
    dtype: type = np.float32
    axes: Sequence[int] | None = (-1,)
    as_attribute: bool = False
    eps: float | None = 1e-5
    late: float | None = None
    eps_first: bool = False
    options: dict[str, int] = field(default_factory=dict)

    def number(self, value: float) -> ir.Value:
        name = f"k{len(self.s.graph.initializers)}"
        return self.s.constant(name, np.array(value, self.dtype))

    def mean(self, x: ir.Value, axes: Sequence[int] | None = None) -> ir.Value:
        axes = self.axes if axes is None else axes
        if axes is None:
            return self.s.op("ReduceMean", x, **self.options)
        if self.as_attribute:
            return self.s.op("ReduceMean", x, axes=list(axes), **self.options)
        given = self.s.integers(f"axes{len(self.s.graph.initializers)}", *axes)
        return self.s.op("ReduceMean", x, given, **self.options)

    def spread(self, mean: ir.Value) -> ir.Value:
        if self.eps is None:
            return mean
        eps = self.number(self.eps)
        return self.s.op("Add", *((eps, mean) if self.eps_first else (mean, eps)), name="spread")

    def root(self, mean: ir.Value) -> ir.Value:
        root = self.s.op("Sqrt", self.spread(mean))
        return root if self.late is None else self.s.op("Add", root, self.number(self.late))


ROOTS: dict[str, OverRoot] = {
    "div": lambda w, x, v: w.s.op("Div", x, w.root(v), name="core"),
    "div-pow": lambda w, x, v: w.s.op(
        "Div", x, w.s.op("Pow", w.spread(v), w.number(0.5)), name="core"
    ),
    "reciprocal": lambda w, x, v: w.s.op("Mul", x, w.s.op("Reciprocal", w.root(v)), name="core"),
    "reciprocal-first": lambda w, x, v: w.s.op(
        "Mul", w.s.op("Reciprocal", w.root(v)), x, name="core"
    ),
    "one-over": lambda w, x, v: w.s.op(
        "Mul", x, w.s.op("Div", w.number(1.0), w.root(v)), name="core"
    ),
    "pow": lambda w, x, v: w.s.op(
        "Mul", x, w.s.op("Pow", w.spread(v), w.number(-0.5)), name="core"
    ),
}
"""value / sqrt(mean of squares + eps); the last node is called `core`."""


def _sub(w: Writer, x: ir.Value, axes: Sequence[int] | None = None) -> ir.Value:
    return w.s.op("Sub", x, w.mean(x, axes))


def _pow(w: Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    d = _sub(w, x)
    return d, w.s.op("Pow", d, w.number(2.0))


def _mul(w: Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    d = _sub(w, x)
    return d, w.s.op("Mul", d, d)


def _two_subs(w: Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    mean = w.mean(x)
    d, e = w.s.op("Sub", x, mean), w.s.op("Sub", x, mean)
    return d, w.s.op("Pow", e, w.number(2.0))


def _two_means(w: Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    d, e = _sub(w, x), _sub(w, x)
    return d, w.s.op("Mul", e, e)


def _turned(w: Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    mean = w.mean(x)
    turned = w.s.op("Sub", mean, x)
    return w.s.op("Sub", x, mean), w.s.op("Mul", turned, turned)


SQUARES: dict[str, Callable[[Writer, ir.Value], tuple[ir.Value, ir.Value]]] = {
    "pow": _pow,
    "mul": _mul,
    "two-subs": _two_subs,
    "two-means": _two_means,
    "turned": _turned,
}
"""x - mean, and its square."""


def layernorm_core(w: Writer, x: ir.Value, square: str = "pow", root: str = "div") -> ir.Value:
    centred, squared = SQUARES[square](w, x)
    return ROOTS[root](w, centred, w.mean(squared))


def layernorm(
    *,
    square: str = "pow",
    root: str = "div",
    dtype: type = np.float32,
    dims: Sequence[int | str] = ("N", 4, 6),
    axes: Sequence[int] | None = (-1,),
    scale: Sequence[int] | None = (6,),
    bias: Sequence[int] | None = (6,),
    opset: int = 21,
    **writer: object,
) -> Sketch:
    """x -> Neg -> layer normalization in one spelling -> y; its nodes are core, scale and bias."""
    s = Sketch(opset)
    x = s.op("Neg", s.input("x", dims, DTYPES[dtype]))
    w = Writer(s, dtype, axes, as_attribute=opset < 18, **writer)
    y = layernorm_core(w, x, square, root)
    if scale is not None:
        y = s.op("Mul", y, s.weight("g", *scale, dtype=dtype), name="scale")
    if bias is not None:
        y = s.op("Add", s.weight("b", *bias, dtype=dtype), y, name="bias")
    s.output(y, None, DTYPES[dtype])
    return s


def rmsnorm_core(w: Writer, x: ir.Value, square: str = "pow", root: str = "div") -> ir.Value:
    squared = w.s.op("Pow", x, w.number(2.0)) if square == "pow" else w.s.op("Mul", x, x)
    return ROOTS[root](w, x, w.mean(squared))


def rmsnorm(
    *,
    square: str = "pow",
    root: str = "div",
    dtype: type = np.float32,
    dims: Sequence[int | str] = ("N", 4, 6),
    axes: Sequence[int] | None = (-1,),
    scale: Sequence[int] | None = (6,),
    opset: int = 21,
    **writer: object,
) -> Sketch:
    """x -> Neg -> root-mean-square normalization in one spelling -> y."""
    s = Sketch(opset)
    x = s.op("Neg", s.input("x", dims, DTYPES[dtype]))
    w = Writer(s, dtype, axes, as_attribute=opset < 18, **writer)
    y = rmsnorm_core(w, x, square, root)
    if scale is not None:
        y = s.op("Mul", s.weight("g", *scale, dtype=dtype), y, name="scale")
    s.output(y, None, DTYPES[dtype])
    return s
