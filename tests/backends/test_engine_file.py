"""What `optcc inspect` reads from an engine."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from optcc.backends.engine_file import inspect_engine, is_engine, read_header
from optcc.errors import UnsupportedModelError
from tests.backends.build import build, needs_rtx, profile
from tests.models.quantized import quantized, small_cnn


@needs_rtx
def test_a_real_engine_tells_about_itself(tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=profile(x=(4, 3, 8, 8)), targets=("sm89",))
    assert outcome.file is not None
    info = inspect_engine(outcome.file)
    assert is_engine(outcome.file)
    assert (info.header.magic, info.header.backend) == ("vtrt", "tensorrt_rtx")
    assert info.header.version == outcome.version
    assert info.header.targets == ("sm89",)
    assert info.bytes == outcome.bytes
    assert info.header.declared_bytes is not None
    assert info.header.declared_bytes <= info.bytes
    assert info.header.weights_bytes is not None
    assert info.header.weights_bytes > 256 * 10 * 4
    assert info.achieved == {"fp32": 2}
    assert info.launches == outcome.launches == sum(info.kernels.values())
    assert [names[0] for names, _, _ in info.weighted] == ["conv", "gemm"]


@needs_rtx
def test_int8_shows(tmp_path: Path) -> None:
    outcome = build(quantized("Conv"), tmp_path)
    assert outcome.file is not None
    assert inspect_engine(outcome.file).achieved == {"int8": 1}


@needs_rtx
def test_a_cut_engine_is_refused(tmp_path: Path) -> None:
    outcome = build(quantized("MatMul"), tmp_path)
    assert outcome.file is not None
    cut = tmp_path / "cut.engine"
    cut.write_bytes(outcome.file.read_bytes()[:-100])
    with pytest.raises(UnsupportedModelError, match="the engine is cut off"):
        inspect_engine(cut)


def test_an_enterprise_engine_tells_its_version_only(tmp_path: Path) -> None:
    path = tmp_path / "model.engine"
    head = bytearray(100)
    head[:4], head[24:28] = b"ftrt", bytes([11, 5, 0, 3])
    path.write_bytes(bytes(head))
    info = inspect_engine(path)
    assert (info.header.backend, info.header.version) == ("tensorrt", "11.5.0.3")
    assert (info.header.targets, info.launches, info.achieved) == ((), None, {})


@pytest.mark.parametrize(
    "data", [b"", b"vtrt", b"ONNX" * 40, struct.pack("<4sI", b"vtrt", 1)], ids=repr
)
def test_anything_else_is_no_engine(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match="not a TensorRT engine"):
        read_header(path)
