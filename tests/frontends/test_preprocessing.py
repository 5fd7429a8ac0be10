from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.preprocessing import Preprocessing, parse_numbers
from optcc.config.request import CompileRequest, Precision
from optcc.driver import compile_model
from optcc.errors import ConfigError
from optcc.frontends.onnx_file import load
from optcc.frontends.preprocessing import with_preprocessing
from optcc.graph.io import to_bytes, write_model
from optcc.progress import Silent
from optcc.runtime.session import Session
from tests.models.sketch import Sketch

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8)).astype(np.uint8)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def classifier(dims=("n", 3, 8, 8), dtype=ir.DataType.FLOAT) -> ir.Model:
    s = Sketch()
    x = s.input("pixels", list(dims), dtype)
    w = s.weight("w", 4, 3, 3, 3, dtype=dtype.numpy().type)
    y = s.op("Relu", s.op("Conv", x, w, pads=[1, 1, 1, 1]))
    s.output(s.op("GlobalAveragePool", y), None, dtype)
    return s.model()


def loaded(tmp_path, model: ir.Model):
    write_model(model, tmp_path / "model.onnx")
    return load(tmp_path / "model.onnx")


def prepared(tmp_path, model: ir.Model, **wanted):
    return with_preprocessing(loaded(tmp_path, model), Preprocessing(**wanted))


def test_raw_pixels_give_what_normalized_ones_gave(tmp_path):
    before = classifier()
    made = prepared(tmp_path, before, dtype="uint8", mean=MEAN, std=STD, scale=1 / 255, swap=True)
    (spec,) = made.signature.inputs
    assert (spec.name, spec.dtype, spec.dims) == ("pixels", ir.DataType.UINT8, ("n", 3, 8, 8))
    column = (3, 1, 1)
    normal = (PIXELS[:, ::-1] / 255 - np.reshape(MEAN, column)) / np.reshape(STD, column)
    (wanted,) = Session(to_bytes(before)).run({"pixels": normal.astype(np.float32)}).values()
    (got,) = Session(to_bytes(made.model)).run({"pixels": PIXELS}).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"dtype": "uint8"}, lambda x: x),
        ({"mean": (127.5,)}, lambda x: x - 127.5),
        ({"std": (2.0,)}, lambda x: x / 2),
        ({"scale": 0.5, "mean": (1.0,)}, lambda x: x * 0.5 - 1),
        ({"swap": True}, lambda x: x[:, ::-1]),
    ],
)
def test_each_part_alone(tmp_path, wanted, expected):
    before = classifier()
    made = prepared(tmp_path, before, **wanted)
    raw = PIXELS if wanted.get("dtype") else PIXELS.astype(np.float32)
    feed = np.ascontiguousarray(expected(PIXELS.astype(np.float32)), dtype=np.float32)
    (reference,) = Session(to_bytes(before)).run({"pixels": feed}).values()
    (got,) = Session(to_bytes(made.model)).run({"pixels": raw}).values()
    np.testing.assert_allclose(got, reference, rtol=1e-5, atol=1e-4)


def test_channels_may_be_last(tmp_path):
    s = Sketch()
    x = s.op("Transpose", s.input("pixels", ["n", 8, 8, 3]), perm=[0, 3, 1, 2])
    s.output(s.op("GlobalAveragePool", x), None)
    made = prepared(tmp_path, s.model(), mean=(1.0, 2.0, 3.0))
    (got,) = Session(to_bytes(made.model)).run({"pixels": np.zeros((1, 8, 8, 3), "f4")}).values()
    np.testing.assert_allclose(got.reshape(-1), [-1, -2, -3])


def test_half_models_get_constants_of_their_type(tmp_path):
    made = prepared(tmp_path, classifier(dtype=ir.DataType.FLOAT16), dtype="uint8", std=(64.0,))
    (got,) = Session(to_bytes(made.model)).run({"pixels": PIXELS}).values()
    assert got.dtype == np.float16


def test_two_inputs_are_refused_by_name(tmp_path):
    s = Sketch()
    s.output(s.op("Add", s.input("a", ["n", 3]), s.input("b", ["n", 3])), None)
    with pytest.raises(ConfigError, match="one float input; the model has 'a', 'b'"):
        prepared(tmp_path, s.model(), mean=(1.0,))


def test_channels_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"dims nx3x8x8: neither axis 1 nor the last has 4"):
        prepared(tmp_path, classifier(), mean=(1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"dtype": "int4"}, "--input-dtype is 'int4'"),
        ({"std": (1.0, 0.0)}, "--std holds a number that is not above 0"),
        ({"scale": 0.0}, "--input-scale must be above 0"),
        ({"mean": (1.0, 2.0), "std": (1.0, 2.0, 3.0)}, "--mean has 2 numbers and --std 3"),
    ],
)
def test_impossible_options_are_refused(wanted, words):
    with pytest.raises(ConfigError) as caught:
        Preprocessing(**wanted)
    assert words in caught.value.what


def test_numbers_may_be_fractions():
    assert parse_numbers("--mean", "1/4, 0.5") == (0.25, 0.5)
    assert parse_numbers("--mean", None) == ()
    for text in ("a", "1/0", "nan", "1,,2"):
        with pytest.raises(ConfigError, match="which is no number"):
            parse_numbers("--mean", text)


def test_a_compile_compares_with_the_model_that_has_it(tmp_path):
    write_model(classifier(), tmp_path / "model.onnx")
    request = CompileRequest(
        model=tmp_path / "model.onnx",
        out=tmp_path / "out",
        precision=Precision.FP32,
        backends=("onnxruntime",),
        preprocessing=Preprocessing(dtype="uint8", mean=(127.5,), std=(64.0,)),
    )
    outcome = compile_model(request, Silent())
    assert outcome.report.verdict.startswith("pass")
    assert "--input-dtype uint8 --mean 127.5 --std 64.0" in outcome.report.reproduce
    model = Session((outcome.folder / "model.onnx").read_bytes())
    (got,) = model.run({"pixels": PIXELS}).values()
    feed = ((PIXELS - 127.5) / 64).astype(np.float32)
    (reference,) = Session(to_bytes(classifier())).run({"pixels": feed}).values()
    np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-4)
