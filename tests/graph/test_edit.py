"""graph.edit: names stay, order stays valid, outputs keep name, type and shape."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph import edit
from optcc.graph.walk import taken_names
from tests.models.small import chain, two_outputs, with_if


def names(graph: ir.Graph) -> list[str]:
    return [n.op_type for n in graph]


def test_constant_of_initializer_and_constant_node():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}>
        { c = Constant<value_floats = [3.0, 4.0]>() t = Add(x, w) y = Add(t, c) }"""
    )
    first, second = list(model.graph)[1:]
    assert edit.constant_of(first.inputs[1]).tolist() == [1, 2]
    assert edit.constant_of(second.inputs[1]).tolist() == [3, 4]
    assert edit.constant_of(first.inputs[0]) is None
    assert edit.constant_of(None) is None
    assert edit.is_constant(second.inputs[1])
    assert not edit.is_constant(second.inputs[0])


@pytest.mark.parametrize(
    ("attribute", "dtype", "expected"),
    [
        ("value_int = 7", np.int64, 7),
        ("value_ints = [1, 2]", np.int64, [1, 2]),
        ("value_float = 0.5", np.float32, 0.5),
        ("value = float[2] {1, 2}", np.float32, [1, 2]),
    ],
)
def test_constant_node_spellings(attribute: str, dtype: type, expected: object):
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g () => (float y) {{ y = Constant<{attribute}>() }}"""
    )
    array = edit.constant_of(model.graph.outputs[0])
    assert array.dtype == dtype
    assert array.tolist() == expected


def test_default_of_an_input_is_no_constant():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
    )
    weight = model.graph.initializers["w"]
    model.graph.inputs.append(weight)
    assert edit.constant_of(weight) is None
    assert not edit.is_constant(weight)


def test_add_constant_takes_a_free_name():
    model = chain("Relu")
    first = edit.add_constant(model.graph, "k", np.float32([1]))
    second = edit.add_constant(model.graph, "k", np.float32([2]))
    assert (first.name, second.name) == ("k", "k_1")
    assert second.shape.numpy() == (1,)
    assert second.dtype == ir.DataType.FLOAT


def test_names_in_use_can_be_handed_over():
    graph = chain("Relu").graph
    taken = taken_names(graph)
    made = [edit.add_constant(graph, "k", np.float32([n]), taken).name for n in range(3)]
    assert made == ["k", "k_1", "k_2"]
    assert taken == taken_names(graph)


def test_add_constant_avoids_names_of_nested_graphs():
    model = with_if()
    assert edit.add_constant(model.graph, "inner", np.float32([1])).name == "inner_1"


def test_replacing_value_takes_the_name():
    model = chain("Relu", "Neg", "Abs")
    old = list(model.graph)[1]
    new = ir.node("Identity", [old.inputs[0]])
    standing = edit.replace_node(model.graph, [old], [new], old.outputs, new.outputs)
    assert names(model.graph) == ["Relu", "Identity", "Abs"]
    assert standing == list(new.outputs)
    assert new.outputs[0].name == "v1"
    assert list(model.graph)[2].inputs[0] is new.outputs[0]
    assert new.name == "v1.Identity"


def test_graph_output_keeps_name_type_and_shape():
    model = chain("Relu", "Neg")
    old = list(model.graph)[1]
    new = ir.node("Abs", [old.inputs[0]])
    edit.replace_node(model.graph, [old], [new], old.outputs, new.outputs)
    output = model.graph.outputs[0]
    assert output is new.outputs[0]
    assert (output.name, output.dtype) == ("y", ir.DataType.FLOAT)
    assert output.shape.numpy() == (2,)


def test_output_that_would_become_an_input_gets_an_identity():
    model = chain("Relu")
    old = model.graph[0]
    assert edit.needs_identity(model.graph, old.outputs[0], model.graph.inputs[0])
    edit.replace_node(model.graph, [old], [], old.outputs, [model.graph.inputs[0]])
    assert names(model.graph) == ["Identity"]
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_two_outputs_never_become_one_value():
    model = two_outputs()
    first, second = list(model.graph)
    edit.replace_node(model.graph, [second], [], second.outputs, first.outputs)
    assert [v.name for v in model.graph.outputs] == ["a", "b"]
    assert names(model.graph) == ["Relu", "Identity"]
    assert len(set(model.graph.outputs)) == 2


def test_inner_value_takes_the_output_name_and_other_readers_follow():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y, float[2] z) { t = Relu(x) y = Identity(t) z = Neg(t) }"""
    )
    relu, identity, neg = list(model.graph)
    edit.replace_node(model.graph, [identity], [], identity.outputs, relu.outputs)
    assert relu.outputs[0].name == "y"
    assert neg.inputs[0] is relu.outputs[0]
    assert [v.name for v in model.graph.outputs] == ["y", "z"]


def test_merging_branches_keeps_a_valid_order():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) {
          a = Relu(x) na = Neg(a) b = Abs(x) y = Add(na, b) }"""
    )
    relu, neg, absolute, add = list(model.graph)
    both = ir.Node("", "Both", [model.graph.inputs[0]], num_outputs=2)
    edit.replace_node(
        model.graph, [relu, absolute], [both], [relu.outputs[0], absolute.outputs[0]], both.outputs
    )
    assert names(model.graph) == ["Both", "Neg", "Add"]
    assert [v.name for v in both.outputs] == ["a", "b"]
    assert neg.inputs[0] is both.outputs[0]
    assert add.inputs[1] is both.outputs[1]


def test_reader_inside_a_subgraph_follows():
    model = with_if()
    old = model.graph[0]
    new = ir.node("Abs", [old.inputs[0]])
    edit.replace_node(model.graph, [old], [new], old.outputs, new.outputs)
    branch = list(model.graph)[-1].attributes["then_branch"].as_graph()
    assert branch[0].inputs[0] is new.outputs[0]


def test_removing_a_read_node_is_refused():
    model = chain("Relu", "Neg")
    with pytest.raises(ValueError, match="still being used"):
        edit.remove_nodes(model.graph, [model.graph[0]])


def test_remove_dead_goes_through_subgraphs_and_initializers():
    model = with_if()
    graph = model.graph
    edit.add_constant(graph, "unused", np.float32([1]))
    condition_node = list(graph)[-1]
    branch = condition_node.attributes["then_branch"].as_graph()
    branch.append(ir.node("Neg", [branch[0].outputs[0]], name="dead_inside"))
    graph.append(ir.node("Neg", [graph.inputs[0]], name="dead"))
    assert edit.remove_dead(graph) == ["dead", "dead_inside", "unused"]
    assert edit.remove_dead(graph) == []


def test_dead_if_releases_what_its_branches_read():
    model = with_if()
    graph = model.graph
    graph.outputs[0] = graph[0].outputs[0]
    removed = edit.remove_dead(graph)
    assert "If" in {n.split("_")[0] for n in removed}
    assert names(graph) == ["Relu"]


def test_an_output_without_declared_shape_keeps_having_none():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float y) { t = Neg(x) y = Identity(t) }"""
    )
    first, last = model.graph
    model.graph.outputs[0].shape = None
    first.outputs[0].shape = ir.Shape([2])
    edit.replace_node(model.graph, [last], [], [last.outputs[0]], [first.outputs[0]])
    [output] = model.graph.outputs
    assert output is first.outputs[0]
    assert (output.name, output.shape) == ("y", None)
