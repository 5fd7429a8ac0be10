"""Nodes that are removed, exchanged or merged where they must not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, op, scalar
from optcc.passkit.rewrite import node_like
from tests.verify.wrong_passes.faulty import (
    Faulty,
    at,
    constant,
    number_like,
    one,
    remade,
)

__all__ = ["structure_faults"]


class SplitSwapped(Faulty):
    """Cuts a value into parts of the right sizes at the wrong places: the last part comes first."""

    def __init__(self) -> None:
        super().__init__("split-parts-swapped", "Split", _gone)

    def applies(self, m: Match) -> bool:
        return len(m.root.outputs) == 2 and self.name not in m.root.metadata_props.values()

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        sizes = constant(graph, constant_of(m.root.inputs[1])[::-1].copy())
        made = node_like(m.root, at(m.root, 1, sizes), outputs=2).outputs[::-1]
        wanted = set(m.outputs)
        return [v for v, old in zip(made, m.root.outputs, strict=True) if old in wanted]


def _gone(m: Match, graph: ir.Graph) -> ir.Value:
    """Let the input stand for the output."""
    return one("Identity", m.root.inputs[0])


def _round_trip(m: Match) -> bool:
    whole, x = m.root.inputs[0], m.value("x")
    return (
        whole.dtype is not None and whole.dtype.is_integer() and x.dtype == m.root.outputs[0].dtype
    )


def _swapped(first: int, second: int):
    def rebuild(m: Match, graph: ir.Graph) -> ir.Value:
        inputs = list(m.root.inputs)
        inputs[first], inputs[second] = inputs[second], inputs[first]
        return remade(m.root, inputs).outputs[0]

    return rebuild


def _clip_low_only(m: Match, graph: ir.Graph) -> ir.Value:
    return remade(m.root, at(m.root, 2, None)).outputs[0]


def _mean_to_sum(m: Match, graph: ir.Graph) -> ir.Value:
    return one("ReduceSum", *m.root.inputs, keepdims=m.root.attributes.get_int("keepdims", 1))


def _sum_to_mean(m: Match, graph: ir.Graph) -> ir.Value:
    return one("ReduceMean", *m.root.inputs, keepdims=m.root.attributes.get_int("keepdims", 1))


def _wrong_target(m: Match, graph: ir.Graph) -> ir.Value:
    """A Reshape to [a, b, c] as one to [c, b, a], turned round: same shape, other places."""
    shape = [int(d) for d in constant_of(m.root.inputs[1])]
    order = [0, *reversed(range(1, len(shape)))]
    turned = constant(graph, np.array([shape[k] for k in order], np.int64))
    return one("Transpose", remade(m.root, at(m.root, 1, turned)).outputs[0], perm=order)


def _is_split_of_last(m: Match) -> bool:
    shape = constant_of(m.root.inputs[1])
    x = m.root.inputs[0].shape
    return (
        shape is not None
        and len(shape) >= 4
        and shape[0] == 0
        and x is not None
        and 0 not in shape[2:]
    )


def _half_overflow(m: Match, graph: ir.Graph) -> ir.Value:
    """Scale up, through half precision, and back down: 65504 is soon reached."""
    x, dtype = m.root.outputs[0], m.root.outputs[0].dtype
    again = remade(m.root).outputs[0]
    again.type = x.type
    big = one("Mul", again, number_like(graph, x, 32768.0))
    half = one("Cast", one("Cast", big, to_=int(ir.DataType.FLOAT16)), to_=int(dtype))
    return one("Div", half, number_like(graph, x, 32768.0))


_ERF_GELU = op(
    "Mul",
    op("Mul", any_("x"), op("Add", op("Erf", op("Div", any_("x"), const("k"))), scalar(1.0))),
    scalar(0.5),
)
_MASKED = op("Softmax", op("Add", any_("scores"), any_("mask"), name="add"))


def _is_mask(m: Match) -> bool:
    mask = constant_of(m.value("mask"))
    return mask is not None and mask.ndim == 2 and bool((mask < -100).any())


def _unmasked(m: Match, graph: ir.Graph) -> ir.Value:
    return remade(m.root, [m.value("scores")]).outputs[0]


def _turned_mask(m: Match, graph: ir.Graph) -> ir.Value:
    mask = constant(graph, np.ascontiguousarray(constant_of(m.value("mask")).T))
    total = remade(m.node("add"), [m.value("scores"), mask]).outputs[0]
    return remade(m.root, [total]).outputs[0]


_PAIR = op("Transpose", op("Transpose", any_("x"), name="first"))
_BITS = Exactness.BITWISE


def _undone(m: Match) -> bool:
    first, second = (list(n.attributes.get_ints("perm") or ()) for n in (m.node("first"), m.root))
    return [first[k] for k in second] != sorted(first)


def _other_order(m: Match, graph: ir.Graph) -> ir.Value:
    first, second = (list(n.attributes.get_ints("perm") or ()) for n in (m.node("first"), m.root))
    return remade(m.root, [m.value("x")], perm=[second[k] for k in first]).outputs[0]


def _larger(m: Match) -> bool:
    cut = constant_of(m.root.inputs[2]) if len(m.root.inputs) > 2 else None
    return cut is not None


def structure_faults() -> list[Faulty]:
    """Make all of them."""
    return [
        Faulty("relu-dropped", "Relu", _gone),
        Faulty("clip-dropped", "Clip", _gone),
        Faulty("clip-upper-dropped", "Clip", _clip_low_only, _larger),
        Faulty("clip-bounds-swapped", "Clip", _swapped(1, 2), _larger),
        Faulty(
            "cast-pair-removed",
            op("Cast", op("Cast", any_("x"))),
            lambda m, g: one("Identity", m.value("x")),
            _round_trip,
            _BITS,
        ),
        Faulty(
            "transpose-pair-removed",
            _PAIR,
            lambda m, g: one("Identity", m.value("x")),
            _undone,
            _BITS,
        ),
        Faulty("transpose-pair-other-order", _PAIR, _other_order, exactness=_BITS),
        Faulty("reshape-wrong-target", "Reshape", _wrong_target, _is_split_of_last, _BITS),
        SplitSwapped(),
        Faulty("where-swapped", "Where", _swapped(1, 2)),
        Faulty("sub-swapped", "Sub", _swapped(0, 1)),
        Faulty("mean-to-sum", "ReduceMean", _mean_to_sum),
        Faulty("sum-to-mean", "ReduceSum", _sum_to_mean),
        Faulty(
            "gelu-tanh-for-erf",
            _ERF_GELU,
            lambda m, g: one("Gelu", m.value("x"), approximate="tanh"),
        ),
        Faulty(
            "gelu-other-approximation",
            "Gelu",
            lambda m, g: remade(m.root, approximate="tanh").outputs[0],
            lambda m: m.root.attributes.get_string("approximate", "none") == "none",
        ),
        Faulty("mask-ignored", _MASKED, _unmasked, _is_mask),
        Faulty("mask-transposed", _MASKED, _turned_mask, _is_mask),
        Faulty("half-overflow", ("MatMul", "Gemm", "Conv"), _half_overflow),
        Faulty(
            "residual-added-twice",
            op("Add", any_("a"), any_("b")),
            lambda m, g: one("Add", remade(m.root).outputs[0], m.value("b")),
            lambda m: not is_constant(m.value("a")) and not is_constant(m.value("b")),
        ),
    ]
