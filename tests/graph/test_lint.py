"""graph.lint: each rule is broken once, and the sentence names the place."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optcc.graph.lint import find_undefined, lint
from optcc.graph.signature import signature_of
from tests.models.small import chain, shadowing, with_if


def test_sound_models_have_no_problems():
    for model in (chain("Relu", "Neg"), with_if()):
        assert lint(model, signature_of(model)) == []


def rename_output(model: ir.Model) -> None:
    model.graph.outputs[0].name = "z"


def retype_output(model: ir.Model) -> None:
    model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)


def reshape_input(model: ir.Model) -> None:
    model.graph.inputs[0].shape = ir.Shape([3])


def drop_producer(model: ir.Model) -> None:
    model.graph.remove(model.graph[0])


def swap_order(model: ir.Model) -> None:
    node = model.graph[0]
    model.graph.remove(node)
    model.graph.append(node)


def repeat_value(model: ir.Model) -> None:
    model.graph[0].outputs[0].name = "x"


def repeat_node(model: ir.Model) -> None:
    model.graph[0].name = model.graph[1].name = "same"


def foreign_domain(model: ir.Model) -> None:
    model.graph[0].domain = "elsewhere"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (rename_output, "outputs were ['y'], are ['z']"),
        (retype_output, "output 'y' was FLOAT (2,), is FLOAT16 (2,)"),
        (reshape_input, "input 'x' was FLOAT (2,), is FLOAT (3,)"),
        (drop_producer, "node 'second' (Neg) reads 'v0', which nothing produces"),
        (swap_order, "node 'second' (Neg) reads 'v0' before it is produced"),
        (repeat_value, "two values are called 'x'"),
        (repeat_node, "two nodes are called 'same'"),
        (foreign_domain, "is of domain 'elsewhere', which is not imported"),
    ],
)
def test_each_fault_is_one_sentence(fault, sentence: str):
    model = chain("Relu", "Neg")
    model.graph[0].name, model.graph[1].name = "first", "second"
    signature = signature_of(model)
    fault(model)
    problems = lint(model, signature)
    assert len(problems) == 1
    assert sentence in problems[0]


def test_reading_out_of_another_branch():
    model = with_if()
    branches = [a.as_graph() for a in model.graph[1].attributes.values()]
    foreign = ir.node("Abs", [branches[0][0].outputs[0]], name="foreign")
    foreign.outputs[0].name = "f"
    branches[1].append(foreign)
    assert lint(model, signature_of(model)) == [
        "node 'foreign' (Abs) reads 'inner' before it is produced or from outside its scope"
    ]


def test_nested_names_count():
    model = shadowing()
    assert "two values are called 't'" in lint(model, signature_of(model))


def test_undefined_output():
    model = chain("Relu")
    model.graph.outputs.append(ir.Value(name="z"))
    assert find_undefined(model) == ["output 'z' of graph 'g' is not produced in it"]
