"""What the spellings of normalizations have in common: means, roots, and constants that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, is_constant
from optcc.graph.shapes import known_rank, static_dims
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import OneOf, Op, Pattern, any_, maybe, one_of, op, scalar
from optcc.passkit.rewrite import Reject, refuse

__all__ = [
    "epsilon_of",
    "inverse_root",
    "mean_of",
    "over_root",
    "refuse_other_axes",
    "refuse_scale_behind",
    "scale_of",
    "sized",
    "trailing_sizes",
    "with_constant",
    "within_casts",
]


_HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def mean_of(value: Pattern) -> Op:
    """Match a ReduceMean; `trailing_sizes` looks at its axes."""
    return op("ReduceMean", value, maybe(any_()))


def over_root(value: Pattern, square: Op | OneOf) -> tuple[Op, Op]:
    """Return the spellings of value / sqrt(square + eps)."""
    return op("Div", value, _root(square)), op("Mul", value, inverse_root(square))


def inverse_root(square: Op | OneOf) -> OneOf:
    """Match 1 / sqrt(square + eps) in every spelling."""
    return one_of(
        op("Reciprocal", _root(square)),
        op("Div", scalar(1.0), _root(square)),
        op("Pow", _spread(square), scalar(-0.5)),
    )


def _root(square: Op | OneOf) -> OneOf:
    plain = one_of(op("Sqrt", _spread(square)), op("Pow", _spread(square), scalar(0.5)))
    return one_of(plain, op("Add", plain, scalar(name="late")))


def _spread(square: Op | OneOf) -> OneOf:
    return one_of(op("Add", square, scalar(name="eps")), square)


def epsilon_of(m: Match) -> float:
    """Return what is added to the mean of squares.

    Raises:
        Reject: Nothing positive is, or something is added to the root, which is another function.
    """
    if m.has("late"):
        raise Reject(f"{m.value('late').name!r} is added after the root, not before")
    refuse(not m.has("eps"), "no epsilon is added under the root")
    number = float(m.array("eps").reshape(()))
    refuse(not 0.0 < number < np.inf, f"epsilon {m.value('eps').name!r} is {number:g}")
    return number


def trailing_sizes(m: Match) -> tuple[int, ...]:
    """Return the sizes of the last axes of x, over which all means of the match are taken.

    Raises:
        Reject: They are taken over other axes, or the sizes are not known.
    """
    x = m.value("x")
    if x.shape is None:
        raise Reject(f"the rank of {x.name!r} is not known")
    rank = x.shape.rank()
    found = {_axes_of(n, rank) for n in m.region if n.op_type == "ReduceMean"}
    refuse(len(found) > 1, "its means are taken over different axes")
    [axes] = found
    last = tuple(range(rank - len(axes), rank))
    refuse(axes != last or not axes, f"it averages over axes {list(axes)} of {rank}, not the last")
    sizes = tuple(x.shape.dims[-len(axes) :])
    numbers = tuple(d for d in sizes if isinstance(d, int))
    refuse(numbers != sizes, f"the size of the averaged axes of {x.name!r} is not known")
    return numbers


def _axes_of(mean: ir.Node, rank: int) -> tuple[int, ...]:
    refuse(not mean.attributes.get_int("keepdims", 1), f"{mean.name!r} drops the averaged axes")
    given: Sequence[int] | None = mean.attributes.get_ints("axes")
    if len(mean.inputs) > 1 and mean.inputs[1] is not None:
        array = constant_of(mean.inputs[1])
        if array is None:
            raise Reject(f"the axes of {mean.name!r} are not constant")
        given = [int(a) for a in array.reshape(-1)]
    if not given:
        keeps_all = bool(mean.attributes.get_int("noop_with_empty_axes", 0))
        return () if keeps_all else tuple(range(rank))
    return tuple(sorted(a % rank for a in given)) if rank else ()


def _fitting(value: ir.Value, rank: int, sizes: Sequence[int]) -> bool:
    """Tell whether the constant `value` varies over the last axes only, and adds no dims.

    Args:
        value: Operand next to a value of rank `rank`.
        rank: Of the normalized value.
        sizes: Of its last axes.
    """
    dims = static_dims(value)
    if dims is None or len(dims) > rank:
        return False
    padded = (1,) * (rank - len(dims)) + dims
    last = zip(padded[rank - len(sizes) :], sizes, strict=True)
    return all(d == 1 for d in padded[: rank - len(sizes)]) and all(d in (1, s) for d, s in last)


def refuse_other_axes(value: ir.Value, x: ir.Value, sizes: Sequence[int]) -> None:
    """Refuse a constant that varies over more than the averaged axes of `x`."""
    fits = _fitting(value, known_rank(x) or 0, sizes)
    refuse(not fits, f"constant {value.name!r} varies over axes that are not averaged")


def refuse_scale_behind(m: Match, sizes: Sequence[int]) -> None:
    """Refuse what an instance normalization does: one scale per channel, means over the rest."""
    reader = _sole_reader(m.root)
    if m.has("scale") or reader is None or reader.op_type != "Mul":
        return
    for value in reader.inputs:
        if value is not None and is_constant(value):
            refuse_other_axes(value, m.value("x"), sizes)


def scale_of(m: Match, graph: ir.Graph, sizes: Sequence[int]) -> ir.Value:
    """Return the constant bound to "scale" with exactly the dims `sizes`, or one of ones."""
    if m.has("scale"):
        return sized(m, "scale", graph, sizes)
    dtype = m.value("x").dtype
    assert dtype is not None
    ones = np.ones(tuple(sizes), dtype.numpy())
    return add_constant(graph, f"{m.outputs[0].name}.scale", ones)


def sized(m: Match, name: str, graph: ir.Graph, sizes: Sequence[int]) -> ir.Value:
    """Return the constant bound to `name` with exactly the dims `sizes`: itself or a new one."""
    if m.value(name).shape == ir.Shape(sizes):
        return m.value(name)
    array = m.array(name)
    last = array.reshape(((1,) * len(sizes) + array.shape)[-len(sizes) :])
    spread = np.ascontiguousarray(np.broadcast_to(last, tuple(sizes)))
    return add_constant(graph, f"{m.outputs[0].name}.{name}", spread)


def with_constant(m: Match, op_type: str, name: str, sizes: Sequence[int]) -> Match:
    """Take in the only reader of the root when it is a `op_type` with a constant that fits.

    Returns:
        The longer match with the constant bound to `name`, or `m`.
    """
    reader, rank = _sole_reader(m.root), known_rank(m.value("x"))
    if reader is None or reader.op_type != op_type or reader.domain != "" or rank is None:
        return m
    others = [v for v in reader.inputs if v is not None and v is not m.root.outputs[0]]
    if len(others) != 1 or not is_constant(others[0]) or not _fitting(others[0], rank, sizes):
        return m
    values = {**m.values, name: others[0]}
    return replace(m, root=reader, values=values, region=(*m.region, reader))


def within_casts(m: Match) -> Match:
    """Take in a Cast of x to float and one of the result back to the type that x had."""
    widen, narrow = m.value("x").producer(), _sole_reader(m.root)
    before = None if widen is None else widen.inputs[0]
    if widen is None or before is None or narrow is None:
        return m
    fits = before.dtype in _HALVES and _cast_type(narrow) is before.dtype
    if not fits or _cast_type(widen) is not ir.DataType.FLOAT or widen.graph is not m.root.graph:
        return m
    inside = set(m.region)
    if any(u.node not in inside for u in widen.outputs[0].uses()):
        return m
    region = (widen, *m.region, narrow)
    return replace(m, root=narrow, values={**m.values, "x": before}, region=region)


def _sole_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that alone reads the result of `node`, in the same graph."""
    value = node.outputs[0]
    users = {use.node for use in value.uses()}
    if value.is_graph_output() or len(users) != 1:
        return None
    [user] = users
    return user if user.graph is node.graph else None


def _cast_type(node: ir.Node | None) -> ir.DataType | None:
    """Return the type that a Cast gives, or None when `node` is no Cast."""
    if node is None or node.op_type != "Cast" or node.domain != "":
        return None
    return ir.DataType(node.attributes.get_int("to", 0))
