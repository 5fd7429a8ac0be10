"""Nodes that are removed, exchanged or merged where they must not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant, replace_node
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, PassContext, PassResult, Rewrite
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, op, scalar
from optcc.passkit.rewrite import node_like
from passes.fuse import sibling_matmul
from tests.verify.wrong_passes.faulty import Faulty, at, changed_constant, constant, number_like, one, remade

__all__ = ["MergedDuplicates", "MergedProducts", "StaleConstants", "structure_faults"]


class MergedProducts:
    """Merges products of different values as if they read the first one's."""

    name = "wrong.qkv-of-different-inputs"
    exactness = Exactness.ROUNDING
    needs = gives = breaks = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        families: dict[Hashable, list[ir.Node]] = {}
        for node in model.graph:
            key = self._family(node)
            if key is not None:
                families.setdefault(key, []).append(node)
        for nodes in families.values():
            if len({n.inputs[0] for n in nodes}) > 1:
                sibling_matmul._merge(model.graph, nodes, ctx, result, self.name)
        return result

    @staticmethod
    def _family(node: ir.Node) -> Hashable | None:
        if node.op_type != "MatMul" or not is_constant(node.inputs[1]):
            return None
        w = constant_of(node.inputs[1])
        alone = len(node.inputs[1].uses()) == 1 and w is not None and w.ndim == 2
        return (known_rank(node.inputs[0]), w.shape[0], str(w.dtype)) if alone else None


class MergedDuplicates:
    """Takes nodes for equal that differ in an attribute or in a constant."""

    name = "wrong.duplicates-attribute-ignored"
    exactness = Exactness.BITWISE
    needs = gives = breaks = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        known: dict[Hashable, ir.Node] = {}
        for node in list(model.graph):
            if node.op_type not in ("Transpose", "Gemm", "Cast", "Clip", "Gather", "ReduceSum"):
                continue
            reads = tuple(v for v in node.inputs if v is not None and not is_constant(v))
            first = known.setdefault((node.op_type, reads), node)
            if first is not node and not node.outputs[0].is_graph_output():
                self._merge(model, first, node, ctx, result)
        return result

    @staticmethod
    def _merge(model, first: ir.Node, node: ir.Node, ctx: PassContext, result: PassResult) -> None:
        inputs = tuple(v for v in node.inputs if v is not None and not is_constant(v))
        record = Rewrite(node.name or "", "same as another", inputs, tuple(node.outputs))
        old, new = [node.outputs[0]], [first.outputs[0]]
        if ctx.apply(record, lambda: replace_node(model.graph, [node], [], old, new)):
            result.rewrites.append(record)


class StaleConstants:
    """Folds arithmetic on constants with what the pass computed for the first such node."""

    name = "wrong.constant-stale"
    exactness = Exactness.ROUNDING
    needs = gives = breaks = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        for node in list(model.graph):
            arrays = [constant_of(v) for v in node.inputs]
            if node.op_type in ("Mul", "Add") and all(a is not None for a in arrays):
                self._fold(model, node, arrays, ctx, result)
        return result

    @staticmethod
    def _fold(model, node: ir.Node, arrays, ctx: PassContext, result: PassResult) -> None:
        stale = np.broadcast_to(arrays[0], np.broadcast_shapes(*(a.shape for a in arrays))).copy()
        record = Rewrite(node.name or "", "folded", (), tuple(node.outputs))

        def write():
            new = constant(model.graph, stale)
            return replace_node(model.graph, [node], [], list(node.outputs), [new])

        if ctx.apply(record, write):
            result.rewrites.append(record)


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
    return whole.dtype is not None and whole.dtype.is_integer() and x.dtype == m.root.outputs[0].dtype


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
    """A Reshape to [a, b, c] done as one to [c, b, a] and turned round: same shape, other places."""
    shape = [int(d) for d in constant_of(m.root.inputs[1])]
    order = [0, *reversed(range(1, len(shape)))]
    turned = constant(graph, np.array([shape[k] for k in order], np.int64))
    return one("Transpose", remade(m.root, at(m.root, 1, turned)).outputs[0], perm=order)


def _is_split_of_last(m: Match) -> bool:
    shape = constant_of(m.root.inputs[1])
    x = m.root.inputs[0].shape
    return shape is not None and len(shape) >= 4 and shape[0] == 0 and x is not None and 0 not in shape[2:]


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
        Faulty("cast-pair-removed", op("Cast", op("Cast", any_("x"))),
               lambda m, g: one("Identity", m.value("x")), _round_trip, _BITS),
        Faulty("transpose-pair-removed", _PAIR, lambda m, g: one("Identity", m.value("x")), _undone, _BITS),
        Faulty("transpose-pair-other-order", _PAIR, _other_order, exactness=_BITS),
        Faulty("reshape-wrong-target", "Reshape", _wrong_target, _is_split_of_last, _BITS),
        SplitSwapped(),
        Faulty("where-swapped", "Where", _swapped(1, 2)),
        Faulty("sub-swapped", "Sub", _swapped(0, 1)),
        Faulty("mean-to-sum", "ReduceMean", _mean_to_sum),
        Faulty("sum-to-mean", "ReduceSum", _sum_to_mean),
        Faulty("gelu-tanh-for-erf", _ERF_GELU, lambda m, g: one("Gelu", m.value("x"), approximate="tanh")),
        Faulty("gelu-other-approximation", "Gelu", lambda m, g: remade(m.root, approximate="tanh").outputs[0],
               lambda m: m.root.attributes.get_string("approximate", "none") == "none"),
        Faulty("mask-ignored", _MASKED, _unmasked, _is_mask),
        Faulty("mask-transposed", _MASKED, _turned_mask, _is_mask),
        Faulty("half-overflow", ("MatMul", "Gemm", "Conv"), _half_overflow),
        Faulty("residual-added-twice", op("Add", any_("a"), any_("b")),
               lambda m, g: one("Add", remade(m.root).outputs[0], m.value("b")),
               lambda m: not is_constant(m.value("a")) and not is_constant(m.value("b"))),
    ]
