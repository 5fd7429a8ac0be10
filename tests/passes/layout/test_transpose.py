from __future__ import annotations

from itertools import permutations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.layout.component import Component
from passes.layout.transpose import SinkTransposes
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

NHWC, NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
DIMS = [2, 3, 4, 5]


def last(s: Sketch, x: ir.Value) -> ir.Value:
    return s.op("Transpose", x, perm=NHWC)


def first(s: Sketch, x: ir.Value) -> ir.Value:
    return s.op("Transpose", x, perm=NCHW)


def between(build) -> ir.Model:
    """x[2, 3, 4, 5] -> to channels last -> build -> back."""
    s = Sketch()
    y = build(s, last(s, s.input("x", DIMS)))
    s.output(s.op("Relu", first(s, y)), None)
    return s.model()


STEPS = {
    "relu": lambda s, x: s.op("Relu", x),
    "clip": lambda s, x: s.op("Clip", x, s.constant("lo", np.float32(-1)), None),
    "bias": lambda s, x: s.op("Add", x, s.weight("b", 3)),
    "row": lambda s, x: s.op("Mul", s.weight("r", 4, 1, 1), x),
    "scalar": lambda s, x: s.op("Sub", s.constant("one", np.float32(1)), x),
    "one": lambda s, x: s.op("Sub", x, s.constant("one", np.ones(1, np.float32))),
    "full": lambda s, x: s.op("Max", x, s.weight("f", 2, 4, 5, 3)),
    "prelu": lambda s, x: s.op("PRelu", x, s.weight("slope", 3)),
    "softmax": lambda s, x: s.op("Softmax", x),
    "softmax 1": lambda s, x: s.op("Softmax", x, axis=1),
    "mean": lambda s, x: s.op("ReduceMean", x, s.integers("axes", 1, -2), keepdims=1),
    "all": lambda s, x: s.op("ReduceMax", x, keepdims=1),
    "pad": lambda s, x: s.op("Pad", x, s.integers("pads", 0, 1, 2, 0, 0, 0, 0, 1)),
    "concat": lambda s, x: s.op("Concat", x, s.op("Neg", x), axis=-1),
    "where": lambda s, x: s.op("Where", s.op("Greater", x, s.weight("t", 3)), x, s.op("Neg", x)),
    "quantized": lambda s, x: s.op(
        "DequantizeLinear",
        s.op("QuantizeLinear", x, s.constant("q", np.float32(0.1)), s.constant("z", np.int8(0))),
        s.constant("q2", np.float32(0.1)),
        s.constant("z2", np.int8(0)),
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_operator_works_in_the_other_order(step):
    model = between(STEPS[step])
    keeps(SinkTransposes(), model, [feed(model)])
    assert "Transpose" not in ops(model)


@settings(deadline=None, max_examples=25)
@given(
    order=st.sampled_from(list(permutations(range(4)))[1:]),
    steps=st.lists(
        st.sampled_from(["relu", "softmax", "softmax 1", "scalar"]), max_size=3, unique=True
    ),
)
def test_every_order_of_axes(order, steps):
    s = Sketch()
    x = s.op("Transpose", s.input("x", DIMS), perm=list(order))
    x = s.op("Abs", x)
    for step in steps:
        x = STEPS[step](s, x)
    s.output(s.op("Transpose", x, perm=[int(k) for k in np.argsort(order)]), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model)])
    assert "Transpose" not in ops(model)


def test_a_channels_last_residual_network_is_left_without_transposes():
    s = Sketch()
    x = s.op("Relu", last(s, s.input("x", ["n", 3, 6, 6])))
    for k in range(3):
        y = s.op("Conv", first(s, x), s.weight(f"w{k}", 3, 3, 3, 3), pads=[1, 1, 1, 1])
        x = s.op("Relu", s.op("Add", last(s, y), x))
    s.output(first(s, x), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model, n=2)])
    assert "Transpose" not in ops(model)
    assert ops(model).count("Conv") == 3


def test_a_split_keeps_its_parts():
    s = Sketch()
    x = last(s, s.input("x", DIMS))
    a = s.op("Split", x, s.integers("sizes", 1, 2), to=["a", "b"], axis=3)
    b = a.producer().outputs[1]
    s.output(first(s, a), None)
    s.output(first(s, b), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model)])
    assert "Transpose" not in ops(model)
    assert [v.name for v in model.graph.outputs] == [v.name for v in s.graph.outputs]


def test_another_order_behind_is_composed():
    s = Sketch()
    x = s.op("Relu", last(s, s.input("x", DIMS)))
    s.output(s.op("Neg", first(s, x)), None)
    s.output(s.op("Transpose", x, perm=[3, 2, 1, 0]), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model)])
    assert ops(model).count("Transpose") == 1


def test_what_is_seen_outside_costs_a_transpose():
    """Two Transposes go, one comes for the value that is also an output."""
    s = Sketch()
    x = s.op("Relu", last(s, s.input("x", DIMS)), to="seen")
    s.output(x, None)
    s.output(s.op("Neg", first(s, x)), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model)])
    assert ops(model).count("Transpose") == 1
    assert model.graph.outputs[0].name == "seen"


def test_no_gain_no_change_and_a_reason():
    s = Sketch()
    x = s.op("Relu", s.op("Add", last(s, s.input("x", DIMS)), s.input("y", [2, 4, 5, 3])))
    s.output(x, None)
    s.output(s.op("Neg", first(s, x)), None)
    result = apply(SinkTransposes(), s.model())
    ((_, reason),) = reasons(result)
    assert reason == "as many Transposes would be needed, for 'y' first"


def test_a_transpose_that_others_read_stays_for_them():
    s = Sketch()
    t = last(s, s.input("x", DIMS))
    s.output(s.op("MatMul", t, s.weight("w", 3, 2)), None)
    s.output(s.op("Neg", first(s, s.op("Relu", t))), None)
    model = s.model()
    keeps(SinkTransposes(), model, [feed(model)])
    assert ops(model).count("Transpose") == 1


def test_a_readers_of_a_nested_graph_gets_the_old_order():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 3, 4] x, bool c) => (float[2, 3, 4] y, float[2, 4, 3] z) {
          t = Transpose <perm = [0, 2, 1]> (x)
          r = Relu(t)
          back = Transpose <perm = [0, 2, 1]> (r)
          y = Neg(back)
          z = If (c) <
            then_branch = a () => (float[2, 4, 3] inner) { inner = Neg(r) },
            else_branch = b () => (float[2, 4, 3] other) { other = Abs(r) }
          > }"""
    )
    from optcc.graph.names import plan_renamings, rename
    from optcc.graph.shapes import infer_shapes

    for renaming in plan_renamings(model):
        rename(renaming)
    infer_shapes(model)
    keeps(SinkTransposes(), model, [feed(model), {**feed(model), "c": np.array(False)}])


@pytest.mark.parametrize(
    "build",
    [
        lambda s, x: s.op("ReduceMean", x, s.integers("axes", 1), keepdims=0),
        lambda s, x: s.op("MatMul", x, s.weight("w", 3, 3)),
        lambda s, x: s.op("LayerNormalization", x, s.weight("g", 3)),
        lambda s, x: s.op("Flatten", x),
    ],
)
def test_other_operators_are_no_carriers(build):
    s = Sketch()
    y = build(s, last(s, s.input("x", DIMS)))
    s.output(y, None)
    assert not apply(SinkTransposes(), s.model()).rewrites


def test_old_softmax_is_left_alone():
    s = Sketch(opset=11)
    y = s.op("Softmax", last(s, s.input("x", DIMS)), axis=1)
    s.output(first(s, y), None)
    assert not apply(SinkTransposes(), s.model()).rewrites


class AxisForgotten(SinkTransposes):
    """The classic fault: the data is turned, the axis of Softmax is not."""

    def run(self, model, ctx):
        softmax = next(n for n in model.graph if n.op_type == "Softmax")
        axis = softmax.attributes["axis"]
        inner, apply_ = ctx, ctx.apply

        class Forgetful:
            def __getattr__(self, name):
                return getattr(inner, name)

            def apply(self, record, action):
                def wrong():
                    standing = action()
                    softmax.attributes["axis"] = axis
                    return standing

                return apply_(record, wrong)

        return super().run(model, Forgetful())


def test_runner_catches_a_broken_twin():
    model = between(STEPS["softmax 1"])
    assert "layout.transpose" in caught(AxisForgotten(), model)


def test_gain_counts_each_transpose_once():
    s = Sketch()
    t = last(s, s.input("x", DIMS))
    x = s.op("Add", t, t)
    s.output(first(s, x), None)
    model = s.model()
    from passes.layout.component import grow

    nodes = list(model.graph)
    found = grow(model.graph, nodes[0], {n: k for k, n in enumerate(nodes)})
    assert isinstance(found, Component)
    assert found.gain() == 2
