"""What `inspect` and `passes` tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from optcc.driver import inspect_file, list_passes
from optcc.errors import ConfigError, UnsupportedModelError
from optcc.report.inspection import ModelInspection
from tests.driver.conftest import ROOT


def test_a_model() -> None:
    found = inspect_file(ROOT / "examples" / "digits" / "digits.onnx")
    assert isinstance(found, ModelInspection)
    assert found.ops["Conv"] >= 3
    assert found.flops is not None
    assert found.flops > 0
    assert found.parameters > 10_000


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        inspect_file(tmp_path / "none.onnx")


def test_a_file_that_is_neither(tmp_path: Path) -> None:
    path = tmp_path / "x.engine"
    path.write_bytes(b"no engine at all")
    with pytest.raises(UnsupportedModelError):
        inspect_file(path)


def test_every_pass_of_ours_can_be_imported() -> None:
    passes = list_passes()
    assert [p.name for p in passes] == sorted(p.name for p in passes)
    assert [p for p in passes if p.problem] == []
    assert {"fuse.conv-batchnorm", "quantize.place", "lower.tensorrt"} <= {p.name for p in passes}
    assert all(p.summary for p in passes)
