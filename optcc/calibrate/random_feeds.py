"""Random samples: allowed when asked for, and never trusted."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import ShapeProfile
from optcc.errors import ConfigError
from optcc.graph.signature import Signature, TensorSpec
from optcc.passkit.contract import Feed

__all__ = ["random_feeds"]


def random_feeds(
    signature: Signature, profile: ShapeProfile | None, *, seed: int, feeds: int
) -> Iterable[Feed]:
    """Yield seeded feeds: floats normal, integers and booleans 0 or 1.

    Raises:
        ConfigError: A free dim has no size.
    """
    shapes = {s.name: _shape(s, profile) for s in signature.inputs}
    for index in range(feeds):
        rng = np.random.default_rng([seed, index])
        yield {s.name: _draw(rng, s, shapes[s.name]) for s in signature.inputs}


def _shape(spec: TensorSpec, profile: ShapeProfile | None) -> tuple[int, ...]:
    for shapes in profile.inputs if profile is not None else ():
        if shapes.name == spec.name:
            return shapes.opt
    dims = spec.dims
    if dims is None or any(not isinstance(d, int) for d in dims[1:]):
        raise ConfigError(
            f"random data needs the size of every free dim of input {spec.name!r}",
            hint=f"add --shapes '{spec.name}:<dims joined by x>'",
        )
    return tuple(d if isinstance(d, int) else 1 for d in dims)


def _draw(rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    dtype = spec.dtype
    if dtype is None or dtype == ir.DataType.STRING:
        raise ConfigError(f"random data cannot be made for input {spec.name!r} ({dtype})")
    if dtype.is_floating_point():
        return np.asarray(rng.standard_normal(shape)).astype(dtype.numpy())
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype.numpy())
