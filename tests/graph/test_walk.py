"""graph.walk: everything is visited once, outer before inner."""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph import walk
from tests.models.small import chain, with_if


def test_graphs_and_nodes_in_order():
    model = with_if()
    assert [g.name for g in walk.all_graphs(model.graph)] == ["g", "t", "e"]
    assert [n.op_type for n in walk.all_nodes(model.graph)] == ["Relu", "If", "Neg", "Abs"]
    assert walk.graphs_of(model) == list(walk.all_graphs(model.graph))


def test_outer_values_and_order():
    model = with_if()
    relu, choice = list(model.graph)
    assert walk.outer_values(choice) == [relu.outputs[0]]
    assert walk.outer_values(relu) == []
    inner = walk.subgraphs_of(choice)[0][0]
    assert walk.order_in(model.graph)[inner] == 1


def test_values_and_names():
    model = with_if()
    assert [v.name for v in walk.all_values(model.graph)] == ["x", "c", "r", "y"]
    assert walk.taken_names(model.graph) == {"x", "c", "r", "y", "inner", "other"}


def test_deep_graphs_need_no_recursion():
    model = chain(*["Relu"] * 3000)
    assert len(list(walk.all_nodes(model.graph))) == 3000
    assert isinstance(model.graph[0], ir.Node)
