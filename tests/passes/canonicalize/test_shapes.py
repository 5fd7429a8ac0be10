"""canonicalize.shapes: what a file claims of inner values is not believed."""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.graph.shapes import static_dims
from optcc.passkit.testing import bare_context
from passes.canonicalize.shapes import CanonicalizeShapes
from tests.models.small import chain


def test_a_lie_is_replaced():
    model = chain("Relu", "Neg")
    inner = model.graph[0].outputs[0]
    inner.shape, inner.type = ir.Shape([7]), ir.TensorType(ir.DataType.INT8)
    context = bare_context()
    result = CanonicalizeShapes().run(model, context)
    assert result.modified
    assert (static_dims(inner), inner.dtype) == ((2,), ir.DataType.FLOAT)
    assert context.events == [("shapes", {"values": 2, "changed": 1})]


def test_second_run_changes_nothing():
    model = chain("Relu", "Neg")
    CanonicalizeShapes().run(model, bare_context())
    before = to_bytes(model)
    assert not CanonicalizeShapes().run(model, bare_context()).modified
    assert to_bytes(model) == before
