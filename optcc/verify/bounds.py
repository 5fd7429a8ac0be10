"""What an input of a model may hold, inferred from its type and from the nodes that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.signature import TensorSpec
from optcc.verify.numeric import is_float

__all__ = ["InputBounds", "bounds_of"]

_CARRIERS = frozenset(
    [
        "Cast",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Identity",
        "Expand",
        "Slice",
        "Concat",
        "Transpose",
        "Flatten",
        "Tile",
        "Clip",
        "Split",
        "Gather",
        "Pad",
    ]
)
_INDEXED = frozenset({"Gather", "GatherElements", "GatherND"})
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_NEEDS_POSITIVE = frozenset({"Log", "Sqrt", "Pow"})
_MOST_VALUES = 64
_MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class InputBounds:
    """Contents that make sense for one input.

    Attributes:
        below: Integers are drawn from 0 up to this; None when nothing limits them.
        choices: Numbers that the model compares the input with.
        positive: Floats must not be negative.
    """

    dtype: np.dtype | None
    below: int | None = None
    choices: tuple[int, ...] = ()
    positive: bool = False

    def draw(
        self, shape: tuple[int, ...], rng: np.random.Generator, turn: int = 0
    ) -> np.ndarray | None:
        """Draw contents; None for types that cannot be made up (texts).

        Args:
            shape: Of the input.
            rng: The only source of randomness.
            turn: Number of the probe; a bool of one element is true in the first and false in the
                second, so that both branches of an If run.
        """
        if self.dtype is None:
            return None
        if self.dtype == np.bool_:
            mixed = np.asarray(rng.random(shape) < 0.5)
            return np.full(shape, turn % 2 == 0) if mixed.size == 1 else mixed
        if is_float(self.dtype):
            normal = rng.standard_normal(shape)
            return np.asarray(np.abs(normal) if self.positive else normal).astype(self.dtype)
        return self._integers(shape, rng).astype(self.dtype)

    def plain(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return ones: the last resort."""
        return None if self.dtype is None else np.ones(shape, self.dtype)

    def _integers(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if self.choices and (self.below is None or not shape):
            return np.asarray(rng.choice(np.array(self.choices), shape))
        if self.below is not None:
            return np.asarray(rng.integers(0, max(1, self.below), shape))
        mixed = np.asarray(rng.random(shape) < 0.7)
        if mixed.ndim and mixed.shape[-1]:
            mixed[..., 0] = True  # a mask hides its end, never everything
        return mixed


def bounds_of(model: ir.Model, spec: TensorSpec) -> InputBounds:
    """Follow an input to the nodes that limit what it may hold."""
    bounds = InputBounds(_numpy(spec.dtype))
    start = next((v for v in model.graph.inputs if v.name == spec.name), None)
    if start is None or bounds.dtype is None:
        return bounds
    if is_float(bounds.dtype):
        first = {u.node.op_type for u in start.uses()}
        return replace(bounds, positive=bool(first & _NEEDS_POSITIVE))
    for node, index in _readers(start):
        bounds = _narrow(bounds, node, index)
    return bounds


def _numpy(dtype: ir.DataType | None) -> np.dtype | None:
    if dtype is None or dtype == ir.DataType.STRING:
        return None
    found = np.dtype(dtype.numpy())
    return found if found.kind in "biu" or is_float(found) else None


def _readers(start: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Yield the nodes that read the integers themselves, moved or cast at most."""
    pending, visited = [start], {start}
    while pending and len(visited) < _MOST_STEPS:
        for use in pending.pop().uses():
            yield use.node, use.idx
            if use.node.op_type in _CARRIERS and use.idx == 0:
                fresh = [v for v in use.node.outputs if v not in visited]
                pending.extend(fresh)
                visited.update(fresh)


def _narrow(bounds: InputBounds, node: ir.Node, index: int) -> InputBounds:
    limit = _limit(node, index)
    if limit is not None:
        below = limit if bounds.below is None else min(bounds.below, limit)
        return replace(bounds, below=below)
    if node.op_type == "Equal":
        other = constant_of(node.inputs[1 - index])
        if other is not None and other.dtype.kind in "iu" and other.size:
            values = sorted({*bounds.choices, *(int(v) for v in other.ravel()[:_MOST_VALUES])})
            return replace(bounds, choices=tuple(values))
    return bounds


def _limit(node: ir.Node, index: int) -> int | None:
    """Return the size of what these integers index, when it is known."""
    if node.op_type in _INDEXED and index == 1:
        return _dim(node.inputs[0], _axis(node))
    if node.op_type in _SCATTERS and index == 1:
        return _dim(node.inputs[0], _axis(node))
    if node.op_type == "OneHot" and index == 0:
        depth = constant_of(node.inputs[1])
        return None if depth is None or depth.size != 1 else int(depth.ravel()[0])
    return None


def _axis(node: ir.Node) -> int:
    return node.attributes.get_int("axis", 0) or 0


def _dim(value: ir.Value | None, axis: int) -> int | None:
    if value is None or value.shape is None or not -value.shape.rank() <= axis < value.shape.rank():
        return None
    dim = value.shape.dims[axis]
    return dim if isinstance(dim, int) else None
