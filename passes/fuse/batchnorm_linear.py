"""BatchNormalization + Conv, Gemm or MatMul -> that node alone."""

from __future__ import annotations

import numpy as np

from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, op
from optcc.passkit.rewrite import refuse
from passes.fuse.batchnorm import PARAMETERS, scale_and_shift
from passes.fuse.input_affine import InputAffineFold, linear

__all__ = ["FuseBatchNormLinear"]


class FuseBatchNormLinear(InputAffineFold):
    """Fold an inference BatchNormalization that follows no Conv into the one that reads it.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A product reads the last axis, so there only data of rank 2 has the channels where it reads.
    """

    name = "fuse.batchnorm-linear"
    pattern = linear(
        op("BatchNormalization", any_("x"), *(any_(n) for n in PARAMETERS), name="norm")
    )

    def scale_and_shift(
        self, m: Match, rank: int, axis: int, channels: int
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Read the parameters; see `InputAffineFold.scale_and_shift`."""
        refuse(axis != 1, "its channels are not the axis that the product reads")
        scale, shift = scale_and_shift(m, m.node("norm"))
        refuse(scale.shape != (channels,), "channel counts differ")
        return scale, shift
