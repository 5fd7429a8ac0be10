from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.verify.cut import MOST_NODES, RegionTooLargeError, cut_region, draws_random
from optcc.verify.execute import CutRunner
from tests.models.regions import conv_bn, node, text, weight


def test_the_cut_ends_at_its_boundary():
    model = conv_bn()
    between = node(model, "conv").outputs[0]
    cut = cut_region(model.graph.outputs, [between], model)
    assert cut.model is not None
    assert [n.op_type for n in cut.model.graph] == ["BatchNormalization"]
    assert list(cut.inputs.values()) == [between]


def test_weights_are_shared_and_large_ones_are_fed():
    model = text("g (float[2, 600] x) => (float[2, 600] y) <float z = {0.0}> { y = Add(x, z) }")
    big = weight(model, "big", np.ones((600, 600), np.float32))
    add = model.graph[0]
    mul = ir.Node("", "MatMul", [model.graph.inputs[0], big], name="mm")
    mul.outputs[0].name = "m"
    model.graph.insert_before(add, mul)
    add.replace_input_with(0, mul.outputs[0])
    cut = cut_region(model.graph.outputs, model.graph.inputs, model)
    assert cut.constants["big"] is big.const_value.numpy()
    assert cut.model is not None
    assert set(cut.model.graph.initializers) == {"z"}
    x = np.ones((2, 600), np.float32)
    [y] = CutRunner(cut).run({model.graph.inputs[0]: x})
    assert np.array_equal(y, np.full((2, 600), 600.0, np.float32))


def test_an_output_that_is_an_input_or_a_constant_needs_no_model():
    model = conv_bn()
    x, gamma = model.graph.inputs[0], model.graph.initializers["gamma"]
    cut = cut_region([x, gamma], [x], model)
    assert cut.model is None
    array = np.zeros((1, 4, 6, 6), np.float32)
    results = CutRunner(cut).run({x: array})
    assert results[0] is array
    assert np.array_equal(results[1], gamma.const_value.numpy())


def test_what_only_shapes_decide_does_not_vary():
    model = text(
        "g (float[b, 4] x) => (float[b, 4] y) { s = Shape(x) e = ConstantOfShape(s) y = Add(x, e) }"
    )
    e = model.graph[1].outputs[0]
    cut = cut_region([e, *model.graph.outputs], model.graph.inputs, model)
    assert e not in cut.varying
    assert model.graph.outputs[0] in cut.varying


def test_fixed_inputs_do_not_vary_either():
    model = text("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    x = model.graph.inputs[0]
    assert not cut_region(model.graph.outputs, [x], model, fixed=lambda v: v is x).varying


def test_the_narrowest_type_and_the_reach_are_found():
    model = text(
        "g (float[4] x) => (float[4] y) <float lo = {-2.0}, float hi = {6.0}>"
        "{ h = Cast<to = 10>(x) c = Clip(h, lo, hi) y = Cast<to = 1>(c) }"
    )
    for value in (model.graph[0].outputs[0], model.graph[1].outputs[0]):
        value.type = ir.TensorType(ir.DataType.FLOAT16)
    cut = cut_region(model.graph.outputs, model.graph.inputs, model)
    assert cut.narrowest == np.float16
    assert cut.reach == 6.0
    assert not cut.stepped


def test_steps_and_random_nodes_are_noticed():
    model = text(
        "g (float[4] x) => (float[4] y) { a = Floor(x) b = RandomNormalLike(a) y = Add(a, b) }"
    )
    cut = cut_region(model.graph.outputs, model.graph.inputs, model)
    assert cut.stepped
    assert cut.random


@pytest.mark.parametrize(("training", "random"), [("true", True), ("false", False)])
def test_dropout_is_random_in_training_only(training, random):
    number = {"true": 1, "false": 0}[training]
    model = text(
        f"g (float[4] x) => (float[4] y) <float r = {{0.5}}, bool t = {{{number}}}>"
        "{ y = Dropout(x, r, t) }"
    )
    assert draws_random(model.graph[0]) is random


def test_a_region_may_not_be_as_large_as_a_model():
    body = " ".join(f"v{k + 1} = Neg(v{k})" for k in range(MOST_NODES + 1))
    model = text(f"g (float[1] v0) => (float[1] v{MOST_NODES + 1}) {{ {body} }}")
    with pytest.raises(RegionTooLargeError):
        cut_region(model.graph.outputs, model.graph.inputs, model)
    near = model.graph[-3].outputs[0]
    assert cut_region(model.graph.outputs, [near], model).model is not None


def test_values_of_one_name_in_two_graphs_stay_apart():
    model = text(
        """g (float[2] x, bool c) => (float[2] y) {
          a = Neg(x)
          y = If (c) <
            then_branch = t () => (float[2] p) { b = Exp(a) p = Neg(b) },
            else_branch = e () => (float[2] q) { b = Abs(a) q = Neg(b) }
          > }"""
    )
    cut = cut_region(model.graph.outputs, model.graph.inputs, model)
    x, c = model.graph.inputs
    arrays = {x: np.array([1.0, -2.0], np.float32), c: np.array(True)}
    assert np.allclose(CutRunner(cut).run(arrays)[0], -np.exp([-1.0, 2.0]))
    arrays[c] = np.array(False)
    assert np.allclose(CutRunner(cut).run(arrays)[0], [-1.0, -2.0])
