"""The simulated graph: fp32 arithmetic, every narrow value rounded where a runtime would not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.simulation import simulate_narrow
from optcc.runtime.session import OptimizationLevel, Session
from tests.models.sketch import Sketch

HALF = ir.DataType.FLOAT16


def half_mlp(scale: float = 1.0) -> ir.Model:
    """fp32 in and out, fp16 inside: x * scale * (1 / scale) by two products."""
    sketch = Sketch()
    x = sketch.input("x", (2, 16))
    h = sketch.op("Cast", x, name="down", to_=int(HALF))
    up = sketch.constant("up", (np.eye(16) * scale).astype(np.float16))
    down = sketch.constant("back", (np.eye(16) / scale).astype(np.float16))
    h = sketch.op("MatMul", h, up, name="m1")
    h = sketch.op("MatMul", h, down, name="m2")
    y = sketch.op("Cast", h, name="up_again", to_=int(ir.DataType.FLOAT), to="y")
    sketch.output(y, (2, 16))
    return sketch.model()


def run(
    model: ir.Model, x: np.ndarray, level: OptimizationLevel = OptimizationLevel.OFF
) -> np.ndarray:
    return Session(to_bytes(model), level=level).run({"x": x})["y"]


def test_signature_and_soundness_are_kept() -> None:
    model = half_mlp()
    before = to_bytes(model)
    made = simulate_narrow(model)
    assert to_bytes(model) == before
    assert lint(made, signature_of(model)) == []
    assert check(made) == []
    assert {n.name for n in model.graph} <= {n.name for n in made.graph}


def test_nothing_computes_in_the_narrow_type() -> None:
    made = simulate_narrow(half_mlp())
    for node in made.graph:
        kinds = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None}
        assert HALF not in kinds or node.op_type == "Cast"


@pytest.mark.parametrize("level", [OptimizationLevel.OFF, OptimizationLevel.ALL])
def test_a_value_that_overflows_only_in_between_shows(level: OptimizationLevel) -> None:
    """A CPU runtime hides it: it computes the fp16 graph in fp32."""
    x = np.full((2, 16), 1000.0, np.float32)
    assert not np.isfinite(run(simulate_narrow(half_mlp(scale=128)), x, level)).any()
    assert np.allclose(run(simulate_narrow(half_mlp(scale=8)), x, level), x)


def test_rounding_is_that_of_the_narrow_type() -> None:
    x = np.linspace(-3, 3, 32, dtype=np.float32).reshape(2, 16)
    got = run(simulate_narrow(half_mlp()), x)
    assert np.array_equal(got, x.astype(np.float16).astype(np.float32))
    assert not np.array_equal(got, x)


def test_narrow_inputs_and_outputs_stay_narrow() -> None:
    sketch = Sketch()
    x = sketch.input("x", (2, 16), HALF)
    w = sketch.constant("w", sketch.rng.standard_normal((16, 4)).astype(np.float16))
    sketch.output(sketch.op("MatMul", x, w, name="m", to="y"), (2, 4), HALF)
    model = sketch.model()
    made = simulate_narrow(model)
    assert signature_of(made) == signature_of(model)
    assert lint(made, signature_of(model)) == []
    data = sketch.rng.standard_normal((2, 16)).astype(np.float16)
    got, reference = run(made, data), run(model, data)
    assert got.dtype == np.float16
    assert np.allclose(got, reference, rtol=2e-3, atol=2e-3)
    assert np.abs(reference).max() > 0.1


def test_branches_are_covered() -> None:
    sketch = Sketch()
    x = sketch.input("x", (4,))
    flag = sketch.input("flag", (), ir.DataType.BOOL)
    h = sketch.op("Cast", x, name="down", to_=int(HALF), to="h")
    h.type, h.shape = ir.TensorType(HALF), ir.Shape((4,))
    branches = []
    for op_type in ("Relu", "Neg"):
        node = ir.Node("", op_type, [h], name=op_type)
        node.outputs[0].name, node.outputs[0].type = f"{op_type}.out", ir.TensorType(HALF)
        node.outputs[0].shape = ir.Shape((4,))
        branches.append(ir.Graph([], [node.outputs[0]], nodes=[node], name=op_type))
    attributes = [
        ir.AttrGraph("then_branch", branches[0]),
        ir.AttrGraph("else_branch", branches[1]),
    ]
    node = ir.Node("", "If", [flag], attributes, num_outputs=1, name="choose")
    node.outputs[0].name, node.outputs[0].type = "chosen", ir.TensorType(HALF)
    node.outputs[0].shape = ir.Shape((4,))
    sketch.graph.append(node)
    y = sketch.op("Cast", node.outputs[0], name="wide", to_=int(ir.DataType.FLOAT), to="y")
    sketch.output(y, (4,))
    model = sketch.model()
    made = simulate_narrow(model)
    assert lint(made, signature_of(model)) == []
    x_data = np.array([1.0001, -2.0003, 3.0, -4.0], np.float32)
    feeds = {"x": x_data, "flag": np.array(False)}
    got = Session(to_bytes(made)).run(feeds)["y"]
    assert np.array_equal(got, -x_data.astype(np.float16).astype(np.float32))


LYING = """
<ir_version: 10, opset_import: ["" : 21]>
g (float16[N, 4] x) => (float16[N, dim] long, float16[N, dim] short)
<int64[1] four = {4}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] axis = {1}> {
  a = Neg(x)
  b = Relu(a)
  long = Concat <axis = 1> (a, b)
  c = Slice(b, zero, two, axis)
  short = Neg(c)
}
"""


def test_outputs_that_share_a_symbol_wrongly_still_run() -> None:
    model = ir.from_onnx_text(LYING)
    for node in model.graph:
        for value in node.outputs:
            value.type = ir.TensorType(ir.DataType.FLOAT16)
    made = simulate_narrow(model)
    inner = [v for n in made.graph for v in n.outputs if not v.is_graph_output()]
    assert inner
    assert all(v.shape is None for v in inner)
    feed = {"x": np.linspace(-1, 1, 8, dtype=np.float16).reshape(2, 4)}
    result = Session(to_bytes(made)).run(feed)
    assert result["long"].shape == (2, 8)
    assert result["short"].shape == (2, 2)
