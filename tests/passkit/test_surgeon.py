from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optcc.errors import ConfigError
from optcc.graph.edit import add_constant
from optcc.passkit.contract import Exactness
from optcc.passkit.surgeon import GraphSurgeonPass, graphsurgeon_pass
from optcc.passkit.testing import bare_context
from tests.models.small import chain, with_if


def relus(count: int = 2) -> ir.Model:
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=("n", 4))
    nodes, value = [], x
    for k in range(count):
        made = ir.node("Relu", [value], name=f"relu{k}", metadata_props={"module": f"m{k}"})
        nodes.append(made)
        value = made.outputs[0]
        value.name = f"y{k}"
    value.shape, value.type = ir.Shape(["n", 4]), ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([x], [value], nodes=nodes, opset_imports={"": 21}, name="g", doc_string="why")
    graph.metadata_props["kept"] = "yes"
    return ir.Model(graph, ir_version=10)


def drop_first(graph) -> None:
    first, second = graph.nodes
    second.inputs[0] = first.inputs[0]


def test_the_function_changes_the_graph_and_metadata_stays():
    model = relus()
    result = GraphSurgeonPass(drop_first).run(model, bare_context())
    assert [r.what for r in result.rewrites] == ["the graph as drop_first leaves it"]
    (left,) = model.graph
    assert (left.name, left.metadata_props["module"]) == ("relu1", "m1")
    assert model.graph.metadata_props["kept"] == "yes"
    assert (model.graph.name, model.graph.doc_string) == ("g", "why")
    assert [v.name for v in model.graph.outputs] == ["y1"]
    assert str(model.graph.outputs[0].shape) == str(relus().graph.outputs[0].shape)


def test_a_function_may_return_another_graph():
    def again(graph):
        other = graph.copy()
        other.nodes[0].op = "Abs"
        return other

    model = relus()
    GraphSurgeonPass(again).run(model, bare_context())
    assert [n.op_type for n in model.graph] == ["Abs", "Relu"]


def test_a_function_that_changes_nothing_is_no_rewrite():
    model = chain("Relu", "Neg")
    before = [str(n) for n in model.graph]
    result = GraphSurgeonPass(lambda graph: None, "surgeon.nothing").run(model, bare_context())
    assert not result.modified
    assert [str(n) for n in model.graph] == before


def test_a_weight_alone_is_a_change():
    model = chain("Relu", "Neg")
    first = model.graph[0]
    model.graph.append(ir.node("Add", [first.outputs[0], add_weight(model)], name="add"))

    def double(graph):
        graph.tensors()["w"].values = graph.tensors()["w"].values * 2

    model.graph.outputs.append(model.graph[-1].outputs[0])
    model.graph[-1].outputs[0].name = "z"
    assert GraphSurgeonPass(double).run(model, bare_context()).modified
    value = model.graph.initializers["w"].const_value
    assert value is not None
    np.testing.assert_array_equal(value.numpy(), [2.0, 4.0])


def add_weight(model: ir.Model) -> ir.Value:
    return add_constant(model.graph, "w", np.array([1.0, 2.0], np.float32))


def test_subgraphs_come_back():
    model = with_if()

    def swap(graph):
        next(n for n in graph.nodes if n.op == "Relu").op = "Abs"

    GraphSurgeonPass(swap).run(model, bare_context())
    assert [n.op_type for n in model.graph] == ["Abs", "If"]
    branch = model.graph[1].attributes["then_branch"].as_graph()
    assert [n.op_type for n in branch] == ["Neg"]


def test_constants_below_a_byte_are_refused_by_name():
    model = chain("Relu")
    narrow = ir.tensor(np.zeros(4, ml_dtypes.int4), name="w4")
    value = ir.Value(name="w4", const_value=narrow, type=ir.TensorType(ir.DataType.INT4))
    model.graph.register_initializer(value)
    result = GraphSurgeonPass(drop_first).run(model, bare_context())
    assert not result.modified
    assert "'w4' has less than a byte per element" in result.rejects[0].reason


def test_the_promise_is_that_of_the_decorator():
    assert GraphSurgeonPass(drop_first).exactness is Exactness.ROUNDING
    assert GraphSurgeonPass(graphsurgeon_pass(swap_none)).exactness is Exactness.ROUNDING
    exact = graphsurgeon_pass(exactness="bitwise")(lambda graph: None)
    assert GraphSurgeonPass(exact, "surgeon.x").exactness is Exactness.BITWISE
    with pytest.raises(ConfigError, match="exactness is 'perfect'"):
        graphsurgeon_pass(exactness="perfect")


def swap_none(graph) -> None:
    """Change nothing."""
