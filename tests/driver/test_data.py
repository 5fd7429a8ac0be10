"""Which samples are used for what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.driver.data import assumed_shapes, choose_precision, gather_data
from optcc.errors import ConfigError
from optcc.frontends.onnx_file import load
from optcc.graph.signature import TensorSpec
from tests.driver.conftest import Notes, npz


def test_int8_where_the_convention_holds(digits: CompileRequest, notes: Notes) -> None:
    precision, calib = choose_precision(digits, notes)
    assert precision is Precision.INT8
    assert calib is not None
    assert Path(calib).name == "digits.npz"
    assert notes.warnings == []


def test_fp16_and_a_word_where_there_is_no_data(saved, notes: Notes) -> None:
    request = replace(
        saved('<ir_version: 10, opset_import: ["":21]> g (float[1] x) => (float[1] y) {y=Neg(x)}'),
        precision=None,
    )
    assert choose_precision(request, notes) == (Precision.FP16, None)
    assert "--calib" in notes.warnings[0]


def test_int8_without_data_names_places_and_remedies(saved, notes: Notes) -> None:
    request = replace(
        saved('<ir_version: 10, opset_import: ["":21]> g (float[1] x) => (float[1] y) {y=Neg(x)}'),
        precision=Precision.INT8,
    )
    with pytest.raises(ConfigError, match=r"calibration_data.model\.npz") as caught:
        choose_precision(request, notes)
    assert "--calib random" in (caught.value.hint or "")


def test_fp32_ignores_data_found_by_convention(digits: CompileRequest, notes: Notes) -> None:
    request = replace(digits, precision=Precision.FP32)
    assert choose_precision(request, notes) == (Precision.FP32, None)


def gathered(request: CompileRequest, calib: str | None):
    loaded = load(request.model)
    return gather_data(request, loaded, Precision.INT8, calib, sizes_matter=True)


def test_samples_are_held_back_from_the_ranges(digits: CompileRequest) -> None:
    data = gathered(digits, "calibration_data/digits.npz")
    assert data.ranges is not None
    assert data.held_back is not None
    assert data.evaluation is data.held_back
    assert not set(data.ranges.digests.tolist()) & set(data.held_back.digests.tolist())
    assert data.ranges.samples > 3 * data.held_back.samples


def test_own_evaluation_data_free_all_samples_for_the_ranges(digits: CompileRequest) -> None:
    data = gathered(replace(digits, evaluation="eval.npz"), "calibration_data/digits.npz")
    assert data.held_back is None
    assert data.evaluation is not None
    assert data.evaluation.labels is not None


def test_evaluating_on_calibration_samples_is_said(digits: CompileRequest) -> None:
    with np.load("calibration_data/digits.npz") as held:
        arrays = {k: held[k] for k in held.files if k != "labels"}
    request = replace(digits, evaluation=npz(Path("same.npz"), **arrays))
    data = gathered(request, "calibration_data/digits.npz")
    assert any(f.code == "eval-in-calib" for f in data.findings)


@pytest.mark.parametrize(
    ("dims", "least", "largest"),
    [
        (("N", 3, "H", "W"), (1, 3, 64, 64), (2, 3, 96, 96)),
        (("N", "S", 8), (1, 6, 8), (2, 10, 8)),
        ((4, 5), (4, 5), (4, 5)),
        (None, (1, 6), (2, 10)),
    ],
)
def test_assumed_shapes_keep_what_is_known(dims, least, largest) -> None:
    assert assumed_shapes(TensorSpec("x", None, dims)) == [least, largest]


def test_free_sizes_are_assumed_only_where_no_engine_depends_on_them(saved) -> None:
    request = saved(
        '<ir_version: 10, opset_import: ["":21]> g (float[N,S] x) => (float[N,S] y) {y=Neg(x)}'
    )
    loaded = load(request.model)
    data = gather_data(request, loaded, Precision.FP32, None, sizes_matter=False)
    assert data.profile.source == "assumed"
    with pytest.raises(ConfigError, match="free dims") as caught:
        gather_data(request, loaded, Precision.FP32, None, sizes_matter=True)
    assert "--shapes" in (caught.value.hint or "")
