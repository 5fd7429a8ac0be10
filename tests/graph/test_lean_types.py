"""What is written out carries no types that readers infer by themselves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.graph.shapes import infer_shapes, without_inferable_types
from optcc.runtime.session import Session

TEXT = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[N, 4] x) => (float[N, 4] y) {
  a = Relu(x)
  b = com.microsoft.Gelu(a)
  y = Neg(b)
}
"""


def test_inner_types_go_and_foreign_ones_stay() -> None:
    model = ir.from_onnx_text(TEXT)
    infer_shapes(model)
    foreign = next(n.outputs[0] for n in model.graph if n.domain)
    foreign.type = ir.TensorType(ir.DataType.FLOAT)
    lean = without_inferable_types(model)
    by_name = {v.name: v for n in lean.graph for v in n.outputs}
    assert by_name["a"].type is None
    assert by_name["a"].shape is None
    assert by_name["b"].type is not None
    assert by_name["y"].shape is not None
    assert next(iter(model.graph)).outputs[0].type is not None, "the original keeps its types"


def test_runs_the_same() -> None:
    model = ir.from_onnx_text(TEXT)
    infer_shapes(model)
    feed = {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)}
    before = Session(to_bytes(model)).run(feed)
    after = Session(to_bytes(without_inferable_types(model))).run(feed)
    assert before["y"].tobytes() == after["y"].tobytes()
