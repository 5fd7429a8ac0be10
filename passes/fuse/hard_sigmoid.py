"""Clip(x + 3, 0, 6) / 6 and its other spellings -> HardSigmoid."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, one_of, op, scalar
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.channels import FLOATS
from passes.fuse.scalar_rank import refuse_added_dims

__all__ = ["SIXTH", "FuseHardSigmoid", "refuse_type", "relu6_of_shifted"]

SIXTH = 1.0 / 6.0

relu6_of_shifted = op("Clip", op("Add", any_("x"), scalar(3.0)), scalar(0.0), scalar(6.0))
"""Clip(x + 3, 0, 6)."""


def refuse_type(value: ir.Value) -> None:
    """Refuse what is no float, and double: the slope is an attribute of single precision."""
    fits = value.dtype in FLOATS and value.dtype is not ir.DataType.DOUBLE
    refuse(not fits, f"the type of {value.name!r} is not float32 or narrower")


class FuseHardSigmoid(RewritePass):
    """Write a decomposed hard sigmoid as HardSigmoid with slope 1/6 and offset 1/2.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fuse.hard-sigmoid"
    exactness = Exactness.ROUNDING
    pattern = one_of(
        op("Div", relu6_of_shifted, scalar(6.0)),
        op("Mul", relu6_of_shifted, scalar(SIXTH)),
        op(
            "Clip",
            op("Add", op("Mul", any_("x"), scalar(SIXTH)), scalar(0.5)),
            scalar(0.0),
            scalar(1.0),
        ),
        op(
            "Clip",
            op("Add", op("Div", any_("x"), scalar(6.0)), scalar(0.5)),
            scalar(0.0),
            scalar(1.0),
        ),
    )

    def check(self, m: Match) -> None:
        """Refuse types other than float, and constants that add dims."""
        refuse_type(m.value("x"))
        refuse_added_dims(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the HardSigmoid."""
        attributes = {"alpha": ir.AttrFloat32("alpha", SIXTH), "beta": ir.AttrFloat32("beta", 0.5)}
        new = node_like(m.root, [m.value("x")], op_type="HardSigmoid", attributes=attributes)
        return new.outputs
