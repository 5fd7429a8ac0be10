"""What an inference BatchNormalization does, as one scale and one shift per channel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import Reject, refuse

__all__ = ["PARAMETERS", "scale_and_shift"]

PARAMETERS = ("gamma", "beta", "mean", "var")
"""Names by which patterns bind inputs 1 to 4."""


def scale_and_shift(m: Match, norm: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Return s and t of y = s * x + t, each [channels] in float64.

    Args:
        m: Binds the parameters of the BatchNormalization.
        norm: It.

    Raises:
        Reject: It trains, a parameter is no constant, or a variance is negative.
    """
    refuse(bool(norm.attributes.get_int("training_mode", 0)), "it is in training mode")
    refuse(any(_is_needed(v) for v in norm.outputs[1:]), "its running statistics are read")
    gamma, beta, mean, var = (_parameter(m, name) for name in PARAMETERS)
    spread = var + norm.attributes.get_float("epsilon", 1e-5)
    refuse(not bool((spread > 0).all()), f"{m.value('var').name!r} holds no valid variance")
    scale = gamma / np.sqrt(spread)
    return scale, beta - mean * scale


def _is_needed(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _parameter(m: Match, name: str) -> np.ndarray:
    array = constant_of(m.value(name))
    if array is None:
        raise Reject(f"{m.value(name).name!r} is not a constant")
    return array.astype(np.float64)
