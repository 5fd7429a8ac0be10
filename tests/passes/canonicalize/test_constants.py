"""canonicalize.constants: Constant nodes and defaults of inputs become plain initializers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.testing import bare_context
from optcc.runtime.session import Session
from passes.canonicalize.constants import CanonicalizeConstants
from tests.models.small import chain


def with_constants() -> ir.Model:
    return ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, bool c) => (float[2] y) {
          k = Constant<value = float[2] {1, 2}>()
          s = Constant<value_float = 3.0>()
          t = Add(x, k) u = Mul(t, s)
          y = If (c) <
            then_branch = a () => (float[2] p) { q = Constant<value_ints = [0]>()
              e = Gather(u, q) p = Add(u, e) },
            else_branch = b () => (float[2] r) { r = Neg(u) }
          > }"""
    )


def test_constants_become_initializers_with_the_same_name():
    model = with_constants()
    signature = signature_of(model)
    result = CanonicalizeConstants().run(model, bare_context())
    assert len(result.rewrites) == 3
    assert set(model.graph.initializers) == {"k", "s"}
    nodes = [n.op_type for n in ir.traversal.RecursiveGraphIterator(model.graph)]
    assert "Constant" not in nodes
    assert lint(model, signature) == []


@pytest.mark.parametrize("flag", [True, False])
def test_same_bits(flag: bool):
    model, reference = with_constants(), with_constants()
    CanonicalizeConstants().run(model, bare_context())
    feed = {"x": np.float32([0.5, -3]), "c": np.array(flag)}
    before, after = (Session(to_bytes(m)).run(feed)["y"] for m in (reference, model))
    assert before.tobytes() == after.tobytes()


def test_default_of_an_input_is_fixed():
    model = chain("Relu")
    weight = ir.Value(
        name="w",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape([2]),
        const_value=ir.tensor(np.float32([1, 2]), name="w"),
    )
    model.graph.inputs.append(weight)
    model.graph.register_initializer(weight)
    signature = signature_of(model)
    result = CanonicalizeConstants().run(model, bare_context())
    assert [r.what for r in result.rewrites] == ["the default of input 'w' is fixed"]
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert signature_of(model) == signature
    assert list(model.graph.initializers) == ["w"]


def test_a_constant_that_is_an_output_stays():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y, float[2] k) {
          [node] k = Constant<value = float[2] {1, 2}>() y = Add(x, k) }"""
    )
    result = CanonicalizeConstants().run(model, bare_context())
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("node", "constant 'k' is an output of its graph")
    ]
    assert not result.modified


def test_second_run_changes_nothing():
    model = with_constants()
    CanonicalizeConstants().run(model, bare_context())
    before = to_bytes(model)
    assert not CanonicalizeConstants().run(model, bare_context()).modified
    assert to_bytes(model) == before


def test_untouched_model_keeps_its_bytes():
    model = chain("Relu", "Neg")
    before = to_bytes(model)
    assert not CanonicalizeConstants().run(model, bare_context()).modified
    assert to_bytes(model) == before


def test_strings_survive():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (int64[1] i) => (string[1] y) {
          k = Constant<value_strings = ["a", "bc"]>() y = Gather(k, i) }"""
    )
    feed = {"i": np.int64([1])}
    before = Session(to_bytes(model)).run(feed)["y"].tolist()
    CanonicalizeConstants().run(model, bare_context())
    assert Session(to_bytes(model)).run(feed)["y"].tolist() == before == ["bc"]
