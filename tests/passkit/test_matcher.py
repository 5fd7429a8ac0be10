"""Patterns: structure, names, order of inputs, and what a match would cut off."""

from __future__ import annotations

import numpy as np

from optcc.passkit.matcher import Match, find_matches
from optcc.passkit.pattern import Root, any_, const, maybe, one_of, op, scalar
from tests.models.sketch import Sketch
from tests.models.small import with_if


def _matches(pattern: Root, sketch: Sketch, index: int = -1) -> list[Match]:
    return list(find_matches(pattern, sketch.graph[index], 21))


def test_binds_nodes_and_values() -> None:
    s = Sketch()
    w = s.weight("w", 2, 2)
    s.output(s.op("Relu", s.op("MatMul", s.input("x", [2, 2]), w, name="mm")))
    [m] = _matches(op("Relu", op("MatMul", any_("x"), const("w"), name="product")), s)
    assert m.node("product").name == "mm"
    assert m.value("x").name == "x"
    assert [n.op_type for n in m.region] == ["MatMul", "Relu"]
    assert [v.name for v in m.inputs] == ["x"]
    assert np.array_equal(m.array("w"), w.const_value.numpy())
    assert m.optional_array("b") is None
    assert not m.has("b")


def test_commuting_inputs_match_in_both_orders() -> None:
    s = Sketch()
    s.output(s.op("Add", s.weight("k", 2), s.input("x", [2])))
    [m] = _matches(op("Add", any_("x"), const("k")), s)
    assert (m.value("x").name, m.value("k").name) == ("x", "k")


def test_inputs_of_sub_keep_their_order() -> None:
    s = Sketch()
    s.output(s.op("Sub", s.weight("k", 2), s.input("x", [2])))
    assert _matches(op("Sub", any_("x"), const("k")), s) == []


def test_a_name_bound_twice_meets_one_value() -> None:
    pattern = op("Mul", any_("x"), op("Sigmoid", any_("x")))
    s = Sketch()
    x = s.input("x", [2])
    s.output(s.op("Mul", s.op("Sigmoid", x), x))
    assert len(_matches(pattern, s)) == 1
    other = Sketch()
    a, b = other.input("a", [2]), other.input("b", [2])
    other.output(other.op("Mul", other.op("Sigmoid", a), b))
    assert _matches(pattern, other) == []


def test_optional_and_surplus_inputs() -> None:
    s = Sketch()
    x, w, b = s.input("x", [1, 2, 4]), s.weight("w", 3, 2, 1), s.weight("b", 3)
    s.op("Conv", x, w, b)
    s.output(s.op("Conv", x, w))
    with_bias = op("Conv", any_("x"), const("w"), maybe(const("b")))
    assert [m.has("b") for k in (0, 1) for m in _matches(with_bias, s, k)] == [True, False]
    assert _matches(op("Conv", any_("x"), const("w")), s, 0) == []


def test_a_default_of_an_input_is_no_constant() -> None:
    s = Sketch()
    k = s.weight("k", 2)
    s.graph.inputs.append(k)
    s.output(s.op("Add", s.input("x", [2]), k))
    assert _matches(op("Add", any_(), const("k")), s) == []


def test_scalars_compare_up_to_tolerance() -> None:
    s = Sketch()
    s.output(s.op("Div", s.input("x", [2]), s.constant("k", np.array([6.0], np.float32))))
    assert len(_matches(op("Div", any_(), scalar(6.0)), s)) == 1
    assert len(_matches(op("Div", any_(), scalar()), s)) == 1
    assert _matches(op("Div", any_(), scalar(6.001)), s) == []


def test_alternatives_are_tried_in_order() -> None:
    s = Sketch()
    s.output(s.op("Relu", s.input("x", [2])))
    pattern = one_of(op("Neg", any_("a")), op("Relu", any_("b")))
    assert [m.has("b") for m in _matches(pattern, s)] == [True]


def test_escape_names_the_value_and_its_reader() -> None:
    s = Sketch()
    inner = s.op("Neg", s.input("x", [2]), to="inner")
    s.op("Abs", inner, name="other")
    s.output(s.op("Relu", inner, name="root"))
    [m] = find_matches(op("Relu", op("Neg", any_())), s.graph.node("root"), 21)
    assert m.escape() == "value 'inner' is also read by 'other'"


def test_escape_sees_graph_outputs() -> None:
    s = Sketch()
    inner = s.op("Neg", s.input("x", [2]), to="inner")
    s.output(inner)
    s.output(s.op("Relu", inner))
    [m] = _matches(op("Relu", op("Neg", any_())), s)
    assert m.escape() == "value 'inner' is also a graph output"


def test_a_match_stays_in_its_graph() -> None:
    model = with_if()
    [neg] = [n for n in model.graph.all_nodes() if n.op_type == "Neg"]
    assert list(find_matches(op("Neg", op("Relu", any_())), neg, 21)) == []
