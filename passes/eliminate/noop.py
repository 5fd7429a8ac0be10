"""Tell of a node whether its first output is always its first input, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.shapes import known_rank, static_dims

__all__ = ["NOOP_TESTS", "is_noop"]

_TO_THE_END = 2**31 - 1


def is_noop(node: ir.Node) -> bool:
    """Tell whether `node` gives back its first input; False when it cannot be proved."""
    return NOOP_TESTS[node.op_type](node)


def _always(node: ir.Node) -> bool:
    return True


def _single_input(node: ir.Node) -> bool:
    return all(v is None for v in node.inputs[1:])


def _open_clip(node: ir.Node) -> bool:
    """Before opset 11 the bounds are attributes."""
    return _single_input(node) and not node.attributes


def _cast(node: ir.Node) -> bool:
    value = node.inputs[0]
    return value is not None and value.dtype == node.attributes.get_int("to", 0)


def _transpose(node: ir.Node) -> bool:
    perm = node.attributes.get_ints("perm")
    if perm is None:
        rank = known_rank(node.inputs[0])
        return rank is not None and rank < 2
    return list(perm) == sorted(perm)


def _flatten(node: ir.Node) -> bool:
    return known_rank(node.inputs[0]) == 2 and node.attributes.get_int("axis", 1) in (1, -1)


def _dropout(node: ir.Node) -> bool:
    if _input(node, 2) is None:
        return "is_test" not in node.attributes
    training = constant_of(_input(node, 2))
    return training is not None and not bool(training.reshape(-1)[0])


def _zero_pad(node: ir.Node) -> bool:
    pads = _integers(node, 1)
    return pads is not None and not pads.any()


def _ones(node: ir.Node) -> bool:
    repeats = _integers(node, 1)
    return repeats is not None and bool((repeats == 1).all())


def _slice(node: ir.Node) -> bool:
    starts, ends, steps = _integers(node, 1), _integers(node, 2), _integers(node, 4)
    if starts is None or ends is None or starts.any():
        return False
    if _input(node, 4) is not None and (steps is None or (steps != 1).any()):
        return False
    return all(e >= _TO_THE_END for e in ends) or _reaches_ends(node, ends)


def _reaches_ends(node: ir.Node, ends: np.ndarray) -> bool:
    value, axes = node.inputs[0], _integers(node, 3)
    if value is None or value.shape is None or (axes is None and _input(node, 3) is not None):
        return False
    dims = value.shape.dims
    for axis, end in zip(range(len(ends)) if axes is None else axes.tolist(), ends, strict=True):
        dim = dims[axis]
        if end < _TO_THE_END and not (isinstance(dim, int) and end >= dim):
            return False
    return True


def _expand(node: ir.Node) -> bool:
    value, target = node.inputs[0], _integers(node, 1)
    if value is None or value.shape is None or target is None:
        return False
    dims = value.shape.dims
    if len(target) > len(dims):
        return False
    aligned = dims[len(dims) - len(target) :]
    return all(want in (1, have) for want, have in zip(target.tolist(), aligned, strict=True))


def _reshape(node: ir.Node) -> bool:
    value, target = node.inputs[0], _integers(node, 1)
    if value is None or value.shape is None:
        return False
    if target is None:
        return _same_static_dims(node)
    dims = value.shape.dims
    if len(target) != len(dims):
        return False
    copies = not node.attributes.get_int("allowzero", 0)
    same = [(w == 0 and copies) or w == d for w, d in zip(target.tolist(), dims, strict=True)]
    inferred = [w == -1 for w in target.tolist()]
    return all(s or i for s, i in zip(same, inferred, strict=True)) and sum(inferred) <= 1


def _same_static_dims(node: ir.Node) -> bool:
    output = node.outputs[0]
    dims = static_dims(node.inputs[0])
    return dims is not None and not output.is_graph_output() and dims == static_dims(output)


def _neutral(number: int, *, floats: bool) -> Callable[[ir.Node], bool]:
    """Make a test for `x op number`; a one-element constant must not add dims to x."""

    def test(node: ir.Node) -> bool:
        other, rank = _input(node, 1), known_rank(node.inputs[0])
        if other is None or other.shape is None or any(d != 1 for d in other.shape):
            return False
        if other.shape.rank() > (rank or 0):
            return False
        array = constant_of(other)
        if array is None or array.dtype.kind not in ("iuf" if floats else "iu"):
            return False
        return bool(array.reshape(()) == number) and not np.signbit(array).any()

    return test


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _integers(node: ir.Node, index: int) -> np.ndarray | None:
    array = constant_of(_input(node, index))
    return None if array is None else array.reshape(-1)


NOOP_TESTS: Mapping[str, Callable[[ir.Node], bool]] = {
    "Identity": _always,
    "Cast": _cast,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Dropout": _dropout,
    "Pad": _zero_pad,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": _ones,
    "Concat": _single_input,
    "Sum": _single_input,
    "Max": _single_input,
    "Min": _single_input,
    "Mean": _single_input,
    "Clip": _open_clip,
    "Mul": _neutral(1, floats=True),
    "Div": _neutral(1, floats=True),
    "Sub": _neutral(0, floats=True),
    "Add": _neutral(0, floats=False),
}
"""By operator; every test may take the first input for granted."""
