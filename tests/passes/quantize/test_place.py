from __future__ import annotations

import onnx_ir as ir
import pytest

from optcc.errors import UnsupportedModelError
from optcc.graph.io import to_bytes
from optcc.passkit.contract import PassResult
from optcc.passkit.qtypes import PerAxis, QuantPlan
from optcc.passkit.testing import bare_context
from passes.quantize.place import PlaceQuantization
from tests.models.layers import attention, conv, perceptron, residual_block, token_layer
from tests.models.sketch import Sketch


def _place(model: ir.Model) -> tuple[QuantPlan, PassResult]:
    context = bare_context()
    result = PlaceQuantization().run(model, context)
    assert context.plan is not None
    return context.plan, result


def test_a_residual_block_is_placed() -> None:
    plan, result = _place(residual_block())
    assert [u.nodes[0] for u in plan.units] == ["stem", "first", "second", "head"]
    second = plan.units[2]
    assert second.activations == ("first_relu_out", "stem_relu_out")
    assert (second.output, second.inner) == ("add_relu_out", ("second_out",))
    assert (second.weight, second.granularity) == ("second_w", PerAxis(0))
    decided = {d.node: (d.wanted, d.reason) for d in plan.decisions}
    assert [n for n, d in decided.items() if d == ("int8", "")] == [
        "stem",
        "first",
        "second",
        "head",
    ]
    assert decided["add"] == decided["add_relu"] == ("fp32", "part of the int8 unit of 'second'")
    assert result.rejects == []


def test_the_graph_keeps_its_bytes() -> None:
    model = residual_block()
    before = to_bytes(model)
    _, result = _place(model)
    assert to_bytes(model) == before
    assert not result.modified


def test_two_runs_decide_the_same() -> None:
    assert _place(attention())[0] == _place(attention())[0]


def test_an_attention_core_stays_float_with_its_reason() -> None:
    plan, result = _place(attention())
    assert [u.nodes[0] for u in plan.units] == ["q", "k", "v", "o"]
    assert [r.node for r in result.rejects] == ["scores", "context"]
    assert all("attention core" in r.reason for r in result.rejects)
    reasons = {d.node: d.reason for d in plan.decisions}
    assert reasons["softmax"] == "Softmax stays in float"


def test_arithmetic_on_raw_features_stays_float() -> None:
    s = Sketch()
    x = s.input("x", ["N", 32])
    scaled = s.op(
        "Div", s.op("Sub", x, s.weight("m", 32), name="sub"), s.weight("d", 32), name="div"
    )
    s.output(s.op("Gemm", scaled, s.weight("w", 32, 16), name="fc"))
    plan, _ = _place(s.model())
    assert [u.nodes for u in plan.units] == [("fc",)]
    assert plan.observed() == ("div_out", "fc_out")


def test_scales_are_shared_through_pool_and_concat() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    a = s.op("MaxPool", conv(s, x, "a"), name="pool", kernel_shape=[1, 1])
    joined = s.op("Concat", a, conv(s, x, "b"), name="concat", axis=1)
    s.output(conv(s, joined, "c", channels=32))
    plan, _ = _place(s.model())
    assert [sorted(g) for g in plan.shared_scale] == [["a_out", "b_out", "concat_out", "pool_out"]]
    wanted = {d.node: d.wanted for d in plan.decisions}
    assert (wanted["pool"], wanted["concat"]) == ("int8", "int8")


def test_a_pool_is_planned_for_the_cpu_only() -> None:
    s = Sketch()
    value = conv(s, s.input("x", [1, 16, 8, 8]), "conv")
    s.output(s.op("GlobalAveragePool", value, name="pool"))
    plan, _ = _place(s.model())
    assert [u.nodes for u in plan.cpu_units] == [("pool",)]
    decision = next(d for d in plan.decisions if d.node == "pool")
    assert (decision.wanted, decision.reason) == ("fp32", "TensorRT averages in float")
    assert {"conv_out", "pool_out"} <= set(plan.observed())


@pytest.mark.parametrize("model", [perceptron(), token_layer()])
def test_every_float_node_has_a_reason(model: ir.Model) -> None:
    plan, _ = _place(model)
    assert {d.node for d in plan.decisions} == {n.name for n in model.graph}
    assert all(bool(d.reason) == (d.wanted == "fp32") for d in plan.decisions)


def test_layers_in_a_branch_are_named_and_left_alone() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[8,16] x, bool c) => (float[8,16] y) <float[16,16] w = {0}> {
          [if] y = If (c) <
            then_branch = t () => (float[8,16] a) { [inner] a = MatMul(x, w) },
            else_branch = e () => (float[8,16] b) { [other] b = Neg(x) }
          > }""".replace("{0}", "{" + ",".join(["1"] * 256) + "}")
    )
    plan, result = _place(model)
    assert plan.units == []
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("inner", "it is inside a subgraph (If, Loop or Scan body)")
    ]


def test_a_quantized_model_is_refused() -> None:
    s = Sketch()
    x = s.input("x", [4])
    scale = s.weight("s")
    s.output(s.op("DequantizeLinear", s.op("QuantizeLinear", x, scale, name="q"), scale))
    with pytest.raises(UnsupportedModelError, match=r"already quantized: node 'q'") as caught:
        _place(s.model())
    assert caught.value.hint is not None
