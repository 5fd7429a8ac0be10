"""What the result was made from."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from optcc.config.request import CompileRequest, CpuClass, Precision
from optcc.driver.data import gather_data
from optcc.driver.provenance import reproduce_line
from optcc.frontends.onnx_file import load


def line_of(request: CompileRequest) -> list[str]:
    data = gather_data(
        request,
        load(request.model),
        Precision.INT8,
        "calibration_data/digits.npz",
        sizes_matter=True,
    )
    return shlex.split(reproduce_line(request, data))


def test_defaults_are_left_out(digits: CompileRequest) -> None:
    assert line_of(replace(digits, backends=())) == [
        "optcc",
        "compile",
        "digits.onnx",
        "--precision",
        "int8",
        "--calib",
        "digits.npz",
    ]


def test_changed_options_are_named_and_paths_are_cut(digits: CompileRequest) -> None:
    request = replace(
        digits,
        evaluation=str(Path("eval.npz").resolve()),
        max_drop=None,
        cpu_class=CpuClass.AVX2,
        seed=3,
        targets=("sm89",),
    )
    line = " ".join(line_of(request))
    for part in ("--eval eval.npz", "--max-drop none", "--cpu-class avx2", "--seed 3"):
        assert part in line
    assert "--target sm89" in line
    assert "--backend onnxruntime" in line
    assert str(Path.cwd()) not in line
