"""graph.shapes: inferred afresh; unknown stays unknown."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.errors import UnsupportedModelError
from optcc.graph.io import infer_values, to_bytes
from optcc.graph.shapes import infer_shapes, known_rank, static_dims
from optcc.runtime.session import Session
from tests.models.small import with_if

FREE = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}> {
  t = Relu(x) y = MatMul(t, w) }"""


def test_symbols_flow_and_outputs_keep_their_claim():
    model = ir.from_onnx_text(FREE)
    inner = model.graph[0].outputs[0]
    inner.shape = ir.Shape([1, 4])
    infer_shapes(model)
    assert [str(d) for d in inner.shape] == ["N", "4"]
    assert static_dims(inner) is None
    assert known_rank(inner) == 2
    assert [str(d) for d in model.graph.outputs[0].shape] == ["N", "2"]


def test_values_of_subgraphs_are_inferred():
    model = with_if()
    branch = model.graph[1].attributes["then_branch"].as_graph()
    extra = ir.node("Abs", [model.graph[0].outputs[0]], name="extra")
    extra.outputs[0].name = "extra"
    branch.insert_before(branch[0], extra)
    branch[1].replace_input_with(0, extra.outputs[0])
    infer_shapes(model)
    assert static_dims(extra.outputs[0]) == (2,)
    assert extra.outputs[0].dtype == ir.DataType.FLOAT


def test_unknown_operators_keep_their_type_without_a_shape():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2] x) => (float[2] y) { t = com.microsoft.Gelu(x) y = Neg(t) }"""
    )
    inner = model.graph[0].outputs[0]
    inner.type, inner.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([9])
    infer_shapes(model)
    assert inner.dtype == ir.DataType.FLOAT
    assert inner.shape is None


def test_a_contradiction_is_named_in_strict_mode():
    model = ir.from_onnx_text(FREE.replace("[N,4] x", "[N,5] x"))
    model.graph[1].name = "product"
    with pytest.raises(UnsupportedModelError, match=r"product.*[Ii]ncompatible dimensions"):
        infer_values(model, strict=True)
    infer_shapes(model)


def test_large_weights_stay_out_and_come_back():
    import numpy as np

    from optcc.graph.edit import add_constant

    model = ir.from_onnx_text(
        FREE.replace("4] x", "4096] x").replace("<float[4,2] w", "<float[4,2] v")
    )
    weight = add_constant(model.graph, "w", np.ones((4096, 2), np.float32))
    model.graph[1].replace_input_with(1, weight)
    infer_shapes(model)
    assert weight.const_value.numpy().shape == (4096, 2)
    assert static_dims(None) is None
    assert known_rank(None) is None


def test_what_a_loop_hands_to_its_body_stays_a_scalar_and_its_state_is_not_trusted():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) <int64 n = {3}> {
          y = Loop(n, "", x) <body = b (int64 i, bool c, float[7] s) => (bool d, float[7] t) {
            d = Identity(c) t = Neg(s) }> }"""
    )
    infer_shapes(model)
    body = model.graph[0].attributes["body"].as_graph()
    assert [static_dims(v) for v in body.inputs] == [(), (), None]
    results = Session(to_bytes(model)).run({"x": np.float32([1, 2])})
    assert results["y"].tolist() == [-1, -2]
