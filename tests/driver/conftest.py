from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.driver import Outcome, compile_model
from optcc.graph.io import write_model

ROOT = Path(__file__).resolve().parents[2]


class Notes:
    """A `Progress` that keeps what it was told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def step(self, done: int, total: int | None = None) -> None:
        pass

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompileRequest:
    """The shipped example with its calibration data, in a folder of its own."""
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    shutil.copy(ROOT / "examples" / "digits" / "eval.npz", tmp_path)
    shutil.copytree(ROOT / "calibration_data", tmp_path / "calibration_data")
    monkeypatch.chdir(tmp_path)
    return CompileRequest(
        model=Path("digits.onnx"), out=tmp_path / "out", backends=("onnxruntime",)
    )


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a model given as text and return the request for it."""
    monkeypatch.chdir(tmp_path)

    def save(text: str, **changes: object) -> CompileRequest:
        path = tmp_path / "model.onnx"
        write_model(ir.from_onnx_text(text), path)
        request = CompileRequest(
            model=path,
            out=tmp_path / "out",
            precision=Precision.FP32,
            backends=("onnxruntime",),
        )
        return replace(request, **changes)

    return save


def compiled(request: CompileRequest, notes: Notes) -> Outcome:
    return compile_model(request, notes)


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return str(path)
