"""x +, -, * or / a constant per channel, then Conv, Gemm or MatMul -> that node alone.

Normalization of pixels at the entry of a graph, above all: (x - mean) / std.
"""

from __future__ import annotations

import numpy as np

from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, op
from passes.fuse.affine import scale_and_shift_of
from passes.fuse.input_affine import InputAffineFold, linear

__all__ = ["FoldPreprocessing"]


class FoldPreprocessing(InputAffineFold):
    """Let the first weighted node do the normalization in front of it.

    Left alone: a shift in front of padding; scales that differ much between channels, as those of
    raw features do, because int8 would then have one range for all of them; large shifts.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fold.preprocessing"
    pattern = linear(op(("Add", "Sub", "Mul", "Div"), any_("x"), const("k"), name="arithmetic"))

    def scale_and_shift(
        self, m: Match, rank: int, axis: int, channels: int
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Read the constant; see `InputAffineFold.scale_and_shift`."""
        node = m.node("arithmetic")
        return scale_and_shift_of(m, node, rank=rank, axis=axis, channels=channels)
