"""Arithmetic with a constant, as one scale and one shift per channel."""

from __future__ import annotations

import numpy as np

from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import Reject
from passes.fuse.channels import per_channel

__all__ = ["scale_and_shift_of"]


def scale_and_shift_of(
    m: Match, *, rank: int, axis: int, channels: int
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return s (None when it is 1) and t of root = s * v + t, each [channels] in float64.

    Args:
        m: Its root is Add, Sub, Mul or Div, with the constant `k` as second operand.
        rank: Of the value v.
        axis: Channel axis of v.
        channels: Size of that axis.

    Raises:
        Reject: The constant varies over more than the channels, or divides by zero.
    """
    vector = per_channel(m.array("k"), rank, axis, channels)
    if vector is None:
        raise Reject(f"constant {m.value('k').name!r} is not one number per output channel")
    kind = m.root.op_type
    if kind in ("Add", "Sub"):
        return None, vector if kind == "Add" else -vector
    if kind == "Mul":
        return vector, np.zeros(channels)
    if not vector.all():
        raise Reject(f"constant {m.value('k').name!r} holds a zero to divide by")
    return 1.0 / vector, np.zeros(channels)
