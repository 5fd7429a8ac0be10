"""x * 0.5 * (1 + erf(x / sqrt(2))) and its approximation by tanh -> Gelu."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import OneOf, Op, Pattern, any_, one_of, op, scalar
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.hard_sigmoid import refuse_type
from passes.fuse.scalar_rank import refuse_added_dims

__all__ = ["FuseGelu"]

_FIRST_OPSET = 20

_NUMBERS = {
    "half": 0.5,
    "offset": 0.5,
    "two": 2.0,
    "one": 1.0,
    "unit": 1.0,
    "root": math.sqrt(2.0),
    "inverse": math.sqrt(0.5),
    "cubic": 0.044715,
    "slope": math.sqrt(2.0 / math.pi),
}
"""What each constant must be, by the name that it is bound to."""

_TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3}
_WIDE_TOLERANCE = 2e-5
"""Relative: some write 1.4142 and 0.7071, and half precision holds three digits."""


def _halved(value: Pattern) -> tuple[Op, Op]:
    return op("Mul", scalar(name="half"), value), op("Div", value, scalar(name="two"))


def _gated(x: Pattern, tail: Pattern) -> tuple[Op, ...]:
    """Return the groupings of 0.5 * x * (1 + tail)."""
    gate = op("Add", scalar(name="one"), tail)
    return (
        *_halved(op("Mul", x, gate)),
        op("Mul", one_of(*_halved(x)), gate),
        op("Mul", x, one_of(*_halved(gate))),
        op("Mul", x, op("Add", one_of(*_halved(tail)), scalar(name="offset"))),
    )


def _bent(x: Pattern) -> OneOf:
    """Match sqrt(2 / pi) * (x + 0.044715 * x^3) in every grouping."""
    k, slope = scalar(name="cubic"), scalar(name="slope")
    kx, x2 = op("Mul", k, x), one_of(op("Mul", x, x), op("Pow", x, scalar(2.0)))
    x3 = one_of(op("Pow", x, scalar(3.0)), op("Mul", x, x2))
    kx2 = one_of(op("Mul", k, x2), op("Mul", kx, x))
    kx3 = one_of(op("Mul", k, x3), op("Mul", x, kx2), op("Mul", kx, x2))
    curve = op("Add", scalar(name="unit"), kx2)
    return one_of(
        op("Mul", slope, op("Add", x, kx3)),
        op("Mul", slope, op("Mul", x, curve)),
        op("Mul", op("Mul", slope, x), curve),
        op("Mul", x, op("Mul", slope, curve)),
    )


_x = any_("x")
_erf = op(
    "Erf",
    one_of(op("Div", _x, scalar(name="root")), op("Mul", _x, scalar(name="inverse"))),
)
_tanh = op("Tanh", _bent(_x), name="tanh")
_quick = op("Mul", _x, scalar(1.702, tolerance=1e-3))


class FuseGelu(RewritePass):
    """Write a decomposed Gelu as the operator, exact or approximated as it was.

    x * sigmoid(1.702 x), the QuickGelu, is another function and stays.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function, with
    constants that were cut to five digits as what they stand for.
    """

    name = "fuse.gelu"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = one_of(
        *_gated(_x, one_of(_erf, _tanh)),
        op("Mul", _x, op("Sigmoid", _quick, name="quick")),
    )

    def check(self, m: Match) -> None:
        """Refuse other constants, types and opsets, and constants that add dims."""
        refuse(m.has("quick"), "it is x * sigmoid(1.702 x), which is up to 0.02 off Gelu")
        refuse(m.opset < _FIRST_OPSET, f"opset {m.opset} has no Gelu")
        refuse_type(m.value("x"))
        refuse_added_dims(m)
        for name in (n for n in _NUMBERS if m.has(n)):
            _refuse_other_number(m, name)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the Gelu."""
        kind = "tanh" if m.has("tanh") else "none"
        attributes = {"approximate": ir.AttrString("approximate", kind)}
        return node_like(m.root, [m.value("x")], op_type="Gelu", attributes=attributes).outputs


def _refuse_other_number(m: Match, name: str) -> None:
    array, want = m.array(name), _NUMBERS[name]
    number = float(array.reshape(()))
    tolerance = _TOLERANCE.get(array.dtype.name, _WIDE_TOLERANCE)
    same = math.isclose(number, want, rel_tol=tolerance)
    refuse(not same, f"constant {m.value(name).name!r} is {number:.6g}, Gelu has {want:.6g}")
