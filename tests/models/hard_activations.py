"""The ways in which exporters write hard sigmoid and hard swish."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

Maker = Callable[[Sketch, ir.Value], ir.Value]


def number(s: Sketch, value: float, dtype: type = np.float32) -> ir.Value:
    name = f"k{len(s.graph.initializers)}"
    return s.constant(name, np.array(value, dtype))


def shifted(s: Sketch, x: ir.Value, shift: float = 3.0) -> ir.Value:
    return s.op("Clip", s.op("Add", x, number(s, shift)), number(s, 0.0), number(s, 6.0))


SIGMOIDS: dict[str, Maker] = {
    "div": lambda s, x: s.op("Div", shifted(s, x), number(s, 6.0)),
    "mul": lambda s, x: s.op("Mul", shifted(s, x), number(s, 1 / 6)),
    "scaled-first": lambda s, x: s.op(
        "Clip",
        s.op("Add", s.op("Mul", x, number(s, 1 / 6)), number(s, 0.5)),
        number(s, 0.0),
        number(s, 1.0),
    ),
    "divided-first": lambda s, x: s.op(
        "Clip",
        s.op("Add", s.op("Div", x, number(s, 6.0)), number(s, 0.5)),
        number(s, 0.0),
        number(s, 1.0),
    ),
}

SWISHES: dict[str, Maker] = {
    "op": lambda s, x: s.op("Mul", s.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x),
    "product-div": lambda s, x: s.op("Div", s.op("Mul", x, shifted(s, x)), number(s, 6.0)),
    "product-mul": lambda s, x: s.op("Mul", s.op("Mul", shifted(s, x), x), number(s, 1 / 6)),
    "div-first": lambda s, x: s.op("Mul", s.op("Div", x, number(s, 6.0)), shifted(s, x)),
    "mul-first": lambda s, x: s.op("Mul", shifted(s, x), s.op("Mul", x, number(s, 1 / 6))),
}


def activation(make: Maker, dims: tuple[int, ...] = (4, 16), opset: int = 21) -> ir.Model:
    s = Sketch(opset)
    s.output(make(s, s.op("Neg", s.input("x", dims))), None)
    return s.model()
