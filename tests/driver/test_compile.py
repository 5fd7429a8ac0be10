"""One compile from file to folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from optcc.artifacts.manifest import verify_folder
from optcc.config.request import CompileRequest, Precision
from optcc.driver import load_report, render_report
from optcc.errors import BackendError, ConfigError, ExitCode, UnsupportedModelError
from optcc.runtime.session import Session
from tests.driver.conftest import Notes, compiled, npz

OVERFLOW = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 4] x) => (float[N, 4] y)
<float[1] up = {400.0}, float[1] down = {0.0025}> {
  one = Mul(x, up)
  wide = Relu(one)
  two = Mul(wide, up)
  high = Relu(two)
  three = Mul(high, down)
  low = Relu(three)
  four = Mul(low, down)
  y = Add(four, x)
}
"""
TINY = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 4] x) => (float[N, 4] y) {
  a = Relu(x)
  y = Neg(a)
}
"""


def test_int8_end_to_end(digits: CompileRequest, notes: Notes) -> None:
    outcome = compiled(replace(digits, evaluation="eval.npz"), notes)
    report, folder = outcome.report, outcome.folder
    assert outcome.exit_code is ExitCode.DONE
    assert report.verdict == "pass"
    assert verify_folder(folder) == []
    assert {r.file for r in report.accuracy.artifacts} == {
        "model.onnx",
        "model.onnxruntime.onnx",
    }
    assert all(
        r.drop_points is not None and r.drop_points <= 0.3 for r in report.accuracy.artifacts
    )
    assert [g.passed for g in report.gates] == [True, True]
    assert sum(n.wanted == "int8" for n in report.precision) >= 5
    assert load_report(folder) == report
    assert str(folder.parent) not in (folder / "manifest.json").read_text()
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)


def test_activations_of_the_engine_spelling_are_signed_and_symmetric(
    digits: CompileRequest, notes: Notes
) -> None:
    folder = compiled(digits, notes).folder
    model = onnx.load(folder / "model.onnx")
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert nodes
    for node in nodes:
        zero = constants[node.input[2]]
        assert zero.dtype == np.int8
        assert not zero.any()


def test_saved_ranges_give_the_same_model(digits: CompileRequest, notes: Notes) -> None:
    first = compiled(digits, notes).folder
    again = replace(digits, ranges=first / "ranges.json", out=digits.out_folder.with_name("again"))
    second = compiled(again, notes).folder
    assert (first / "model.onnx").read_bytes() == (second / "model.onnx").read_bytes()


def test_random_calibration_is_never_a_pass(digits: CompileRequest, notes: Notes) -> None:
    report = compiled(replace(digits, calib="random", evaluation="eval.npz"), notes).report
    assert report.verdict in ("unverified", "fail")
    assert any(f.severity == "red" for f in report.calibration.findings)


def test_the_gate_can_be_switched_off_but_not_silently(
    digits: CompileRequest, notes: Notes
) -> None:
    report = compiled(replace(digits, max_drop=None), notes).report
    assert report.verdict == "unverified"
    assert any("switched off" in r for r in report.reasons)


def test_a_value_that_overflows_fp16_only_in_between_fails(saved, notes: Notes) -> None:
    rows = np.linspace(1, 9, 256, dtype=np.float32).reshape(64, 4)
    request = saved(OVERFLOW, precision=Precision.FP16, evaluation=npz(Path("rows.npz"), x=rows))
    outcome = compiled(request, notes)
    assert outcome.exit_code is ExitCode.VERIFICATION
    assert outcome.report.verdict == "fail"
    assert outcome.folder.name == "out.failed"
    assert not request.out_folder.exists()
    assert not list(outcome.folder.glob("*.onnx"))


def test_fp16_of_a_tame_model_passes_simulated(saved, notes: Notes) -> None:
    rows = np.linspace(-9, 9, 256, dtype=np.float32).reshape(64, 4)
    request = saved(TINY, precision=Precision.FP16, evaluation=npz(Path("rows.npz"), x=rows))
    outcome = compiled(request, notes)
    assert outcome.exit_code is ExitCode.DONE
    by_file = {r.file: r for r in outcome.report.accuracy.artifacts}
    assert by_file["model.onnx"].simulated
    assert not by_file["model.onnxruntime.onnx"].simulated


def test_int8_with_nothing_to_quantize_fails(saved, notes: Notes) -> None:
    rows = np.linspace(-9, 9, 256, dtype=np.float32).reshape(64, 4)
    request = saved(TINY, precision=Precision.INT8, calib=npz(Path("rows.npz"), x=rows))
    outcome = compiled(request, notes)
    assert outcome.exit_code is ExitCode.VERIFICATION
    assert outcome.report.reasons[0].startswith("not one node was quantized")


def test_fp32_keeps_the_function(saved, notes: Notes) -> None:
    request = saved(TINY)
    folder = compiled(request, notes).folder
    feed = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    before, after = Session(request.model).run(feed), Session(folder / "model.onnx").run(feed)
    assert before["y"].tobytes() == after["y"].tobytes()
    assert not (folder / "model.onnxruntime.onnx").exists()


def test_a_model_that_the_runtime_cannot_run_is_refused(saved, notes: Notes) -> None:
    mismatched = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 4] x, float[M, 4] z) => (float[K, 4] y) { y = Add(x, z) }
    """
    rows = {"x": np.ones((4, 4), np.float32), "z": np.ones((3, 4), np.float32)}
    folder = Path("feeds")
    folder.mkdir()
    np.savez(folder / "0.npz", **rows)
    request = saved(mismatched, evaluation=str(folder))
    with pytest.raises(UnsupportedModelError, match=r"cannot run model\.onnx"):
        compiled(request, notes)
    assert not request.out_folder.exists()


def test_strict_refuses_what_has_no_labels(saved, notes: Notes) -> None:
    outcome = compiled(saved(TINY, strict=True), notes)
    assert outcome.exit_code is ExitCode.VERIFICATION
    assert not (outcome.folder / "model.onnx").exists()


def test_an_unknown_backend_stops_before_any_work(saved, notes: Notes) -> None:
    with pytest.raises(ConfigError, match="no_such"):
        compiled(saved(TINY, backends=("no_such",)), notes)
    assert notes.stages == []


def test_a_named_backend_that_cannot_be_used_leaves_nothing(saved, notes: Notes) -> None:
    request = saved(TINY, backends=("tensorrt",))
    with pytest.raises((BackendError, ConfigError)):
        compiled(request, notes)
    assert not request.out_folder.exists()


def test_every_rendering_of_a_finished_folder(digits: CompileRequest, notes: Notes) -> None:
    folder = compiled(digits, notes).folder
    assert json.loads(render_report(folder, "json"))["schema_version"]
    assert "<html" in render_report(folder, "html")
    assert render_report(folder, "md").startswith("#")
    assert "digits.onnx" in render_report(folder, "terminal")
    with pytest.raises(ConfigError, match="no report format"):
        render_report(folder, "pdf")


def test_a_folder_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no report\.json"):
        load_report(tmp_path)
