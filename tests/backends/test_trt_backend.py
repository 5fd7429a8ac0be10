"""The build itself: bytes, profiles, failures, and that nothing is left behind."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.backends.contract import BuildStatus
from optcc.backends.tensorrt import Tensorrt
from optcc.backends.tensorrt_rtx import TensorrtRtx
from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.errors import ConfigError, WriteError
from optcc.progress import Silent
from tests.backends.build import build, job, needs_rtx, profile
from tests.models.quantized import deep_cnn, quantized, small_cnn
from tests.models.sketch import Sketch

SHAPES = profile(x=(4, 3, 8, 8))


@needs_rtx
def test_builds_what_it_says(tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=SHAPES, targets=("sm86", "sm89"))
    assert outcome.status is BuildStatus.BUILT
    assert outcome.file == tmp_path / "model.tensorrt_rtx.engine"
    data = outcome.file.read_bytes()
    assert (outcome.bytes, outcome.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert outcome.targets == ("sm86", "sm89")
    assert outcome.launches is not None
    assert 2 <= outcome.launches <= 6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", outcome.file.name]
    assert "sm86, sm89" in TensorrtRtx().runs_on(outcome)


@needs_rtx
def test_default_targets_are_in_the_engine(tmp_path: Path) -> None:
    assert build(quantized(), tmp_path).targets == ("sm80", "sm86", "sm89", "sm120")


@needs_rtx
@pytest.mark.parametrize(
    ("model", "shapes"),
    [(small_cnn(), SHAPES), (deep_cnn(6), profile(x=(4, 64, 16, 16)))],
    ids=["small", "deep"],
)
def test_same_bytes_in_another_folder_and_environment(
    model: ir.Model, shapes: ShapeProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamic models: there the builder orders by address, unless the child's layout is fixed."""
    digests = set()
    for turn, name in enumerate(["a", "b" * 120, "c/" * 20]):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.setenv("PYTHONHASHSEED", str(turn))
        monkeypatch.setenv("OPTCC_TEST_PADDING", "x" * 3000 * turn)
        outcome = build(model, folder, shapes=shapes)
        digests.add(outcome.sha256)
        assert outcome.warnings == ()
    assert len(digests) == 1


@needs_rtx
def test_the_profile_is_in_the_engine(tmp_path: Path) -> None:
    one, other = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    other.mkdir()
    small = build(small_cnn(), one, shapes=SHAPES)
    large = build(small_cnn(), other, shapes=profile(x=(64, 3, 8, 8)))
    assert small.sha256 != large.sha256


@needs_rtx
@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (ShapeProfile((), "static"), "input 'x' is dynamic and no shapes are given for it"),
        (
            ShapeProfile(
                (InputShapes(name="x", min=(4, 3, 8, 8), opt=(2, 3, 8, 8), max=(8, 3, 8, 8)),), "t"
            ),
            "the given shapes are not ordered: every dimension needs min <= opt <= max",
        ),
        (profile(x=(4, 3, 9, 9)), "the shapes contradict a fixed dimension"),
    ],
    ids=["absent", "not ordered", "another static dim"],
)
def test_wrong_shapes_are_explained(shapes: ShapeProfile, reason: str, tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=shapes)
    assert (outcome.status, outcome.reason) == (BuildStatus.FAILED, reason)
    assert "--shapes" in outcome.hint
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@needs_rtx
def test_an_unsupported_node_is_named(tmp_path: Path) -> None:
    sketch = Sketch()
    y = sketch.op("Det", sketch.input("x", (4, 4)), name="the_det", to="y")
    sketch.output(y, ())
    outcome = build(sketch.model(), tmp_path)
    assert (outcome.status, outcome.node) == (BuildStatus.FAILED, "the_det")
    assert outcome.reason == "Det is not supported by this TensorRT"
    assert outcome.file is None


@needs_rtx
def test_asymmetric_quantization_is_explained(tmp_path: Path) -> None:
    outcome = build(quantized(zero_point=3), tmp_path)
    assert outcome.status is BuildStatus.FAILED
    assert "zero point that is not 0" in outcome.reason
    assert outcome.node == "x.q"


@needs_rtx
def test_an_earlier_engine_survives_a_failed_build(tmp_path: Path) -> None:
    request = job(small_cnn(), tmp_path)
    request.out.write_bytes(b"earlier")
    assert TensorrtRtx().build(request, Silent()).status is BuildStatus.FAILED
    assert request.out.read_bytes() == b"earlier"


@needs_rtx
def test_a_full_disk_is_a_write_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    request = job(small_cnn(), tmp_path, shapes=SHAPES)
    partial = tmp_path / "model.tensorrt_rtx.engine.partial"
    partial.symlink_to("/dev/full")
    with pytest.raises(WriteError, match="cannot be written: No space left on device"):
        TensorrtRtx().build(request, Silent())
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


@needs_rtx
def test_external_data_behind_a_symlink_is_found(tmp_path: Path) -> None:
    from optcc.graph.io import write_model

    real = tmp_path / "real"
    real.mkdir()
    write_model(small_cnn(), real / "model.onnx", external_above=0)
    assert len(list(real.iterdir())) == 2
    (tmp_path / "link.onnx").symlink_to(real / "model.onnx")
    request = replace(
        job(small_cnn(), tmp_path, shapes=SHAPES), model=tmp_path / "link.onnx", graph=small_cnn()
    )
    assert TensorrtRtx().build(request, Silent()).status is BuildStatus.BUILT


def test_a_target_of_another_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tensorrt_rtx cannot build for target 'sm90'"):
        build(quantized(), tmp_path, targets=("sm90",))


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="target 'sm88' is not known"):
        build(quantized(), tmp_path, targets=("sm88",))


@needs_rtx
def test_the_parent_never_imports_the_library(tmp_path: Path) -> None:
    import sys

    build(quantized(), tmp_path)
    assert not {"tensorrt_rtx", "tensorrt"} & set(sys.modules)


def test_the_enterprise_module_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = Tensorrt().availability()
    assert (found.ok, found.reason) == (False, "tensorrt is not installed")
    assert "optcc-compiler[tensorrt]" in found.hint


def test_the_enterprise_module_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from optcc.backends import tensorrt

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(tensorrt, "find_cuda_device", lambda: None)
    found = Tensorrt().availability()
    assert found.reason == "tensorrt builds on an NVIDIA GPU, and there is none here"


def test_the_enterprise_module_builds_for_the_gpu_here_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optcc.backends import tensorrt
    from optcc.backends.device import CudaDevice

    monkeypatch.setattr(tensorrt, "find_cuda_device", lambda: CudaDevice("Some GPU", "sm89"))
    assert Tensorrt().targets(job(quantized(), tmp_path)) == ("sm89",)
    with pytest.raises(ConfigError, match="the GPU of this machine, sm89, not for sm90"):
        Tensorrt().targets(job(quantized(), tmp_path, targets=("sm90",)))


def test_an_absent_module_skips_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    request = job(quantized(), tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcome = TensorrtRtx().build(request, Silent())
    assert (outcome.status, outcome.reason) == (
        BuildStatus.SKIPPED,
        "tensorrt_rtx is not installed",
    )


@needs_rtx
def test_probe_loads_the_module_for_real() -> None:
    found = TensorrtRtx().probe()
    assert found.ok
    assert found.version.startswith("1.")
