"""Measure how much rounding alone may move a result: disturb inputs and weights a little, look.

A fold into a channel whose variance is tiny multiplies rounding errors by a large number, which is
no fault of the fold. The disturbance is many times the rounding of one number, so that its effect
is well measured, and is scaled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.verify.cut import Cut
from optcc.verify.execute import CutFeed, CutRunner
from optcc.verify.numeric import epsilon, is_float, ordinary

__all__ = [
    "Noise",
    "change",
    "disturb",
    "disturbed_model",
    "rounding_noise",
    "rounding_unit",
]

_DISTURBANCE = {"float64": 2.0**-40, "float32": 2.0**-15, "float16": 2.0**-7, "bfloat16": 2.0**-4}
_SAFETY = {"float64": 32.0, "float32": 32.0, "float16": 2.0, "bfloat16": 2.0}
"""Half types round so coarsely that 32 of their units would hide an error of five percent; the
runtime computes them in float32 anyway and rounds only what goes from node to node."""
_DRAWS = 2


@dataclass(frozen=True, slots=True)
class Noise:
    """How one output reacts.

    Attributes:
        rounding: Absolute error that rounding may make, with a safety factor.
        moved: Absolute change under the disturbance itself.
    """

    rounding: float
    moved: float


def rounding_noise(
    cut: Cut,
    feeds: Sequence[CutFeed],
    references: Sequence[tuple[np.ndarray, ...]],
    rng: np.random.Generator,
) -> list[list[Noise]]:
    """Disturb a region and measure the change of each output, for each feed.

    Args:
        cut: The region as it was.
        feeds: The probes.
        references: What the region gave for each of them.
        rng: Chooses the signs of the disturbance.
    """
    moved = [[0.0] * len(r) for r in references]
    unit = 0.0 if cut.narrowest is None else rounding_unit(cut.narrowest)
    for _ in range(_DRAWS if cut.model is not None else 0):
        runner = CutRunner(_disturbed(cut, rng))
        for k, (feed, reference) in enumerate(zip(feeds, references, strict=True)):
            try:
                results = runner.run({v: disturb(a, rng) for v, a in feed.items()})
            except BackendError:
                continue
            pairs = zip(moved[k], reference, results, strict=True)
            moved[k] = [max(m, change(a, b)) for m, a, b in pairs]
    return [[Noise(m * unit, m) for m in row] for row in moved]


def rounding_unit(dtype: np.dtype) -> float:
    """Return the factor from a change under the disturbance to what rounding may do."""
    if not is_float(dtype):
        return 0.0
    return epsilon(dtype) / _DISTURBANCE[dtype.name] * _SAFETY[dtype.name]


def change(reference: np.ndarray, got: np.ndarray) -> float:
    """Return the largest finite difference in the bulk; 0 where there is none."""
    if reference.shape != got.shape or reference.dtype.hasobject or reference.size == 0:
        return 0.0
    usual = ordinary(reference)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.abs(np.asarray(reference, np.float64) - np.asarray(got, np.float64))[usual]
    finite = moved[np.isfinite(moved)]
    return float(finite.max()) if finite.size else 0.0


def disturb(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Multiply every float by 1 plus or minus a little; other types stay."""
    if not is_float(array.dtype):
        return array
    signs = rng.integers(0, 2, array.shape) * 2.0 - 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        moved = array * (1.0 + signs * _DISTURBANCE[array.dtype.name])
        return np.asarray(moved, dtype=array.dtype)


def _disturbed(cut: Cut, rng: np.random.Generator) -> Cut:
    assert cut.model is not None
    constants = {n: disturb(a, rng) for n, a in cut.constants.items()}
    return replace(cut, model=disturbed_model(cut.model, rng), constants=constants)


def disturbed_model(model: ir.Model, rng: np.random.Generator) -> ir.Model:
    """Copy `model` with every float weight of its main graph disturbed."""
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or not tensor.dtype.is_floating_point():
            continue
        array = tensor.numpy()
        if is_float(array.dtype):
            value.const_value = ir.tensor(disturb(array, rng), dtype=tensor.dtype)
    return copy
