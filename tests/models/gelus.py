"""The ways in which exporters write Gelu, exact and approximated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

NUMBERS = {
    "half": 0.5,
    "two": 2.0,
    "one": 1.0,
    "root": math.sqrt(2),
    "inverse": math.sqrt(0.5),
    "cubic": 0.044715,
    "slope": math.sqrt(2 / math.pi),
}

DTYPES = {np.float32: ir.DataType.FLOAT, np.float16: ir.DataType.FLOAT16}


class Arithmetic:
    """Binary operators on values and named constants: `a("Mul", x, "half")`.

    Args:
        s: Gets the nodes.
        changed: Other numbers than those of Gelu.
        dims: Of each constant.
    """

    def __init__(
        self,
        s: Sketch,
        dtype: type = np.float32,
        changed: Mapping[str, float] | None = None,
        dims: tuple[int, ...] = (),
    ) -> None:
        self.s, self.dtype, self.dims = s, dtype, dims
        self.numbers = {**NUMBERS, **(changed or {})}

    def __call__(self, op_type: str, *operands: ir.Value | str | float) -> ir.Value:
        return self.s.op(op_type, *(self._value(o) for o in operands))

    def _value(self, operand: ir.Value | str | float) -> ir.Value:
        if isinstance(operand, ir.Value):
            return operand
        number = self.numbers[operand] if isinstance(operand, str) else operand
        stem = operand if isinstance(operand, str) else "power"
        array = np.full(self.dims, number, self.dtype)
        return self.s.constant(f"{stem}{len(self.s.graph.initializers)}", array)


Tail = Callable[[Arithmetic, ir.Value], ir.Value]
Gate = Callable[[Arithmetic, ir.Value, ir.Value], ir.Value]

ERFS: dict[str, Tail] = {
    "div": lambda a, x: a("Erf", a("Div", x, "root")),
    "mul": lambda a, x: a("Erf", a("Mul", x, "inverse")),
    "mul-first": lambda a, x: a("Erf", a("Mul", "inverse", x)),
}

CUBES: dict[str, Tail] = {
    "pow": lambda a, x: a("Mul", "cubic", a("Pow", x, 3.0)),
    "products": lambda a, x: a("Mul", a("Mul", x, a("Mul", x, x)), "cubic"),
    "square-pow": lambda a, x: a("Mul", "cubic", a("Mul", a("Pow", x, 2.0), x)),
    "from-left": lambda a, x: a("Mul", a("Mul", a("Mul", "cubic", x), x), x),
    "from-right": lambda a, x: a("Mul", x, a("Mul", "cubic", a("Mul", x, x))),
    "halves": lambda a, x: a("Mul", a("Mul", x, "cubic"), a("Mul", x, x)),
}

CURVES: dict[str, Tail] = {
    "from-left": lambda a, x: a("Mul", a("Mul", "cubic", x), x),
    "square": lambda a, x: a("Mul", "cubic", a("Mul", x, x)),
    "pow": lambda a, x: a("Mul", a("Pow", x, 2.0), "cubic"),
}


def _sum(cube: Tail) -> Tail:
    return lambda a, x: a("Tanh", a("Mul", "slope", a("Add", x, cube(a, x))))


def _product(curve: Tail) -> Tail:
    return lambda a, x: a("Tanh", a("Mul", a("Mul", x, "slope"), a("Add", "one", curve(a, x))))


TANHS: dict[str, Tail] = {
    **{f"sum-{name}": _sum(cube) for name, cube in CUBES.items()},
    **{f"product-{name}": _product(curve) for name, curve in CURVES.items()},
    "product-right": lambda a, x: a(
        "Tanh",
        a("Mul", "slope", a("Mul", x, a("Add", a("Mul", "cubic", a("Mul", x, x)), "one"))),
    ),
    "product-inside": lambda a, x: a(
        "Tanh",
        a("Mul", x, a("Mul", a("Add", a("Mul", "cubic", a("Mul", x, x)), "one"), "slope")),
    ),
}

GATES: dict[str, Gate] = {
    "on-x": lambda a, x, t: a("Mul", a("Mul", x, "half"), a("Add", t, "one")),
    "on-x-div": lambda a, x, t: a("Mul", a("Add", "one", t), a("Div", x, "two")),
    "on-sum": lambda a, x, t: a("Mul", x, a("Mul", a("Add", t, "one"), "half")),
    "on-sum-div": lambda a, x, t: a("Mul", a("Div", a("Add", t, "one"), "two"), x),
    "on-product": lambda a, x, t: a("Mul", "half", a("Mul", x, a("Add", t, "one"))),
    "on-product-div": lambda a, x, t: a("Div", a("Mul", a("Add", t, "one"), x), "two"),
    "spread": lambda a, x, t: a("Mul", x, a("Add", a("Mul", t, "half"), "half")),
}


def gelu(
    tail: Tail,
    gate: Gate,
    *,
    dtype: type = np.float32,
    dims: tuple[int | str, ...] = ("N", 4, 16),
    opset: int = 21,
    changed: Mapping[str, float] | None = None,
    constants: tuple[int, ...] = (),
) -> Sketch:
    """x -> Neg -> Gelu in one spelling -> y; the last node is called `gelu`."""
    s = Sketch(opset)
    x = s.op("Neg", s.input("x", dims, DTYPES[dtype]))
    a = Arithmetic(s, dtype, changed, constants)
    y = gate(a, x, tail(a, x))
    y.producer().name = "gelu"
    s.output(y, None, DTYPES[dtype])
    return s
