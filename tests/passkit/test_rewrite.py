"""The run loop of rewrite passes: names, metadata, rejects, subgraphs, leftovers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Rewrite
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, op
from optcc.passkit.rewrite import (
    MADE_BY,
    RewritePass,
    drop_unread,
    new_nodes_behind,
    node_like,
    refuse,
)
from optcc.passkit.testing import BareContext, bare_context
from tests.models.sketch import Sketch
from tests.models.small import chain
from tests.passes.promise import apply, ops, reasons


class NegNegToAbs(RewritePass):
    """Wrong arithmetic, right surgery."""

    name = "test.neg-neg"
    exactness = Exactness.LOSSY
    pattern = op("Neg", op("Neg", any_("x"), name="first"))

    def check(self, m: Match) -> None:
        refuse(m.node("first").name == "keep", "it is to be kept")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        return node_like(m.root, [m.value("x")], op_type="Abs", attributes={}).outputs


class AddToNeg(RewritePass):
    name = "test.add"
    exactness = Exactness.LOSSY
    pattern = op("Add", any_("x"), const("k"))

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        return node_like(m.root, [m.value("x")], op_type="Neg").outputs


def test_output_name_and_node_name_survive() -> None:
    model = chain("Neg", "Neg")
    root = model.graph[1].name = "second"
    result = apply(NegNegToAbs(), model)
    [node] = model.graph
    assert (node.op_type, node.name, node.outputs[0].name) == ("Abs", root, "y")
    assert node.metadata_props[MADE_BY] == "test.neg-neg"
    assert [(r.node, r.what) for r in result.rewrites] == [(root, "Neg + Neg")]


def test_later_nodes_see_earlier_rewrites() -> None:
    model = chain("Neg", "Neg", "Neg", "Neg")
    apply(NegNegToAbs(), model)
    assert ops(model) == ["Abs", "Abs"]


def test_reason_is_recorded_once() -> None:
    model = chain("Neg", "Neg")
    model.graph[0].name = "keep"
    result = apply(NegNegToAbs(), model)
    assert reasons(result) == [(model.graph[1].name, "it is to be kept")]
    assert ops(model) == ["Neg", "Neg"]


def test_value_seen_from_outside_is_refused() -> None:
    s = Sketch()
    inner = s.op("Neg", s.input("x", [2]), to="inner")
    s.output(inner, [2])
    s.output(s.op("Neg", inner, name="root"), [2])
    assert reasons(apply(NegNegToAbs(), s.model())) == [
        ("root", "value 'inner' is also a graph output")
    ]


class NegsToAbs(NegNegToAbs):
    def extended(self, m: Match) -> Match:
        while (uses := m.root.outputs[0].uses()) and not m.root.outputs[0].is_graph_output():
            m = replace(m, root=uses[0].node, region=(*m.region, uses[0].node))
        return m


def test_a_match_may_take_in_nodes_after_it() -> None:
    model = chain("Neg", "Neg", "Neg", "Neg")
    root = model.graph[3].name = "last"
    result = apply(NegsToAbs(), model)
    assert [(r.node, r.what) for r in result.rewrites] == [(root, "Neg + Neg + Neg + Neg")]
    assert [(n.op_type, n.name) for n in model.graph] == [("Abs", root)]


def test_subgraphs_are_covered() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x, bool c) => (float[2] y) {
          [If_0] y = If (c) <
            then_branch = t () => (float[2] a) { [n] n = Neg(x) [m] a = Neg(n) },
            else_branch = e () => (float[2] b) { [k] b = Relu(x) }
          > }"""
    )
    apply(NegNegToAbs(), model)
    assert ops(model) == ["If", "Abs", "Relu"]


def test_constants_without_reader_are_dropped() -> None:
    s = Sketch()
    k = s.weight("k", 2)
    s.output(s.op("Add", s.op("Add", s.input("x", [2]), k), k), [2])
    model = s.model()
    apply(AddToNeg(), model)
    assert ops(model) == ["Neg", "Neg"]
    assert "k" not in model.graph.initializers


def test_dead_matches_are_left_to_dead_code() -> None:
    s = Sketch()
    x = s.input("x", [2])
    s.op("Neg", s.op("Neg", x))
    s.output(s.op("Relu", x), [2])
    assert not NegNegToAbs().run(s.model(), bare_context()).rewrites


class Refusing(BareContext):
    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        return False


def test_rolled_back_rewrites_are_not_recorded() -> None:
    model = chain("Neg", "Neg")
    assert not NegNegToAbs().run(model, Refusing()).rewrites
    assert ops(model) == ["Neg", "Neg"]


def test_new_nodes_come_producers_first() -> None:
    x = ir.Value(name="x")
    first = ir.Node("", "Neg", [x])
    second = ir.Node("", "Add", [first.outputs[0], first.outputs[0]])
    assert new_nodes_behind(second.outputs) == [first, second]


def test_drop_unread_stops_at_what_is_read() -> None:
    model = chain("Neg", "Abs", "Relu")
    neg, middle, relu = model.graph
    relu.replace_input_with(0, neg.outputs[0])
    drop_unread([middle.outputs[0]])
    assert ops(model) == ["Neg", "Relu"]
