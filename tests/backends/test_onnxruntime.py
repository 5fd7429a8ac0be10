"""What ONNX Runtime makes of a graph is read from its own optimized graph."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
import pytest

from optcc.backends.contract import BuildJob, BuildOutcome, BuildStatus
from optcc.backends.onnxruntime import OnnxRuntime, _original_name
from optcc.config.shapes import ShapeProfile
from optcc.errors import BackendError, WriteError
from optcc.graph.io import write_model
from optcc.progress import Silent
from optcc.runtime import session
from tests.models.quantized import quantized, small_cnn
from tests.models.sketch import Sketch


class Space(NamedTuple):
    total: int
    used: int
    free: int


def load(model: ir.Model, folder: Path, wanted: dict[str, str] | None = None) -> BuildOutcome:
    write_model(model, folder / "model.onnx")
    request = BuildJob(
        model=folder / "model.onnx",
        out=folder / "none",
        profile=ShapeProfile((), "static"),
        wanted=wanted or {},
    )
    return OnnxRuntime().build(request, Silent())


def unsigned_conv(*, output_pair: bool) -> ir.Model:
    """A Conv as the CPU provider likes it; without Q/DQ at its output it stays float."""
    sketch = Sketch()
    zero = sketch.constant("zero", np.array(128, np.uint8))
    scale = sketch.constant("scale", np.array(0.02, np.float32))
    x = sketch.input("x", (1, 4, 8, 8))
    q = sketch.op("QuantizeLinear", x, scale, zero, name="q")
    x = sketch.op("DequantizeLinear", q, scale, zero, name="dq")
    data = sketch.constant("w.int8", sketch.rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8))
    w_scale = sketch.constant("w.scale", np.full(8, 0.01, np.float32))
    w_zero = sketch.constant("w.zero", np.zeros(8, np.int8))
    w = sketch.op("DequantizeLinear", data, w_scale, w_zero, name="w.dq", axis=0)
    y = sketch.op("Conv", x, w, name="conv")
    y = sketch.op("Relu", y, name="relu")
    if output_pair:
        least = sketch.constant("least", np.array(0, np.uint8))  # the range swallows the Relu
        q = sketch.op("QuantizeLinear", y, scale, least, name="q2")
        y = sketch.op("DequantizeLinear", q, scale, least, name="dq2")
    sketch.output(y, (1, 8, 6, 6))
    return sketch.model()


def test_a_full_temporary_folder_is_no_fault_of_the_model(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BackendError("Failed to write external initializers")

    monkeypatch.setattr(session, "Session", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Space(1 << 20, 1 << 20, 0))
    with pytest.raises(WriteError, match="no space left for temporary files") as caught:
        load(small_cnn(), tmp_path)
    assert "TMPDIR" in (caught.value.hint or "")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Space(1 << 40, 0, 1 << 40))
    assert load(small_cnn(), tmp_path).status is BuildStatus.FAILED


def test_an_int8_kernel_is_seen(tmp_path: Path) -> None:
    outcome = load(unsigned_conv(output_pair=True), tmp_path, {"conv": "int8"})
    assert [(n.node, n.got) for n in outcome.nodes] == [("conv", "int8")]
    assert outcome.nodes[0].launch.startswith("QLinearConv")
    assert outcome.fallbacks() == ()
    assert (outcome.targets, outcome.file) == (("cpu",), None)
    assert OnnxRuntime().runs_on(outcome).startswith("any CPU with ONNX Runtime")


def test_a_float_kernel_is_a_fallback_with_its_reason(tmp_path: Path) -> None:
    outcome = load(unsigned_conv(output_pair=False), tmp_path, {"conv": "int8"})
    assert [(n.node, n.got) for n in outcome.fallbacks()] == [("conv", "fp32")]
    assert "keeps it in float" in outcome.fallbacks()[0].reason


def test_fused_nodes_are_found_under_their_old_names(tmp_path: Path) -> None:
    outcome = load(small_cnn(), tmp_path, {"relu": "fp32"})
    assert [(n.node, n.got) for n in outcome.nodes] == [
        ("conv", "fp32"),
        ("relu", "folded"),
        ("gemm", "fp32"),
    ]
    assert outcome.launches == 4  # FusedConv, MaxPool, Flatten, Gemm


@pytest.mark.parametrize(
    ("made", "original"),
    [
        ("fused /f1/Gemm", "/f1/Gemm"),
        ("/c1/Conv_token_12", "/c1/Conv"),
        ("a/MatMul/MatMulScaleFusion/", "a/MatMul"),
        ("MatMul@0/MatMulAddFusion", "MatMul@0"),
        ("my_token", "my_token"),
        ("plain", "plain"),
    ],
)
def test_names_that_the_runtime_makes(made: str, original: str) -> None:
    assert _original_name(made) == original


def test_a_refused_model_fails_and_names_the_node(tmp_path: Path) -> None:
    sketch = Sketch(opset=17)
    y = sketch.op("Det", sketch.input("x", (4, 4)), name="the_det", to="y")
    y = sketch.op("MatMul", y, sketch.weight("w", 3, 4), name="odd_matmul")
    sketch.output(y, None)
    outcome = load(sketch.model(), tmp_path)
    assert outcome.status is BuildStatus.FAILED
    assert outcome.node == "odd_matmul"
    assert "[ONNXRuntimeError]" not in outcome.reason
    assert str(tmp_path) not in outcome.reason


def test_large_constants_stay_out_of_the_saved_graph(tmp_path: Path) -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.input("x", (1, 512)), sketch.weight("w", 512, 512), name="m")
    sketch.output(y, (1, 512))
    assert load(sketch.model(), tmp_path).achieved() == {"fp32": 1}


def test_quantized_for_the_other_backend_is_reported_honestly(tmp_path: Path) -> None:
    outcome = load(quantized("MatMul"), tmp_path, {"heavy": "int8"})
    assert [n.got for n in outcome.nodes] in (["fp32"], ["int8"])
    assert "unknown" not in outcome.achieved()
