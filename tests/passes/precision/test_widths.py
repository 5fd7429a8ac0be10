"""Which constants fit fp16, and which nodes may be narrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from passes.precision.widths import misfit, widths_of
from tests.models.sketch import Sketch


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([1.0, 70000.0], np.float32), "largest value is 7e+04, fp16 ends at 65504"),
        (np.array([np.finfo(np.float32).min], np.float32), "fp16 ends at 65504"),
        (np.array([1e-12], np.float32), "too small for fp16"),
        (np.full((2000, 1000), 1e-7, np.float32), "too small for fp16"),
    ],
)
def test_what_does_not_fit(array: np.ndarray, words: str) -> None:
    assert words in misfit(array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.0, 1.0, -65504.0], np.float32),
        np.array([-np.inf, 0.0], np.float32),
        np.array([1.0, 1e-9], np.float32),
        np.zeros((0,), np.float32),
        np.array(5.0, np.float32),
    ],
    ids=["largest", "infinity", "one tiny among large", "empty", "scalar"],
)
def test_what_fits(array: np.ndarray) -> None:
    assert misfit(array) == ""


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(max_dims=3, max_side=8),
        elements=st.floats(-60000, 60000, width=32),
    )
)
def test_what_fits_keeps_its_norm(array: np.ndarray) -> None:
    if misfit(array) == "":
        error = np.linalg.norm(array.astype(np.float64) - array.astype(np.float16))
        assert error <= 0.011 * np.linalg.norm(array.astype(np.float64))


def decisions(sketch: Sketch) -> dict[str, str]:
    return {n.name or "": w.reason for n, w in widths_of(sketch.model().graph)}


def test_a_spelled_out_normalization_is_an_island() -> None:
    sketch = Sketch()
    x = sketch.input("x", (2, 16))
    h = sketch.op("MatMul", x, sketch.weight("w", 16, 16), name="first")
    mean = sketch.op("ReduceMean", h, sketch.integers("axes", 1), name="mean")
    centered = sketch.op("Sub", h, mean, name="sub")
    square = sketch.op("Mul", centered, centered, name="square")
    variance = sketch.op("ReduceMean", square, sketch.integers("axes2", 1), name="variance")
    eps = sketch.constant("eps", np.array(1e-12, np.float32))
    root = sketch.op("Sqrt", sketch.op("Add", variance, eps, name="add_eps"), name="root")
    y = sketch.op("Div", centered, root, name="div")
    y = sketch.op("MatMul", y, sketch.weight("w2", 16, 4), name="second", to="y")
    sketch.output(y, (2, 4))
    found = decisions(sketch)
    assert [name for name, reason in found.items() if reason == ""] == ["first", "second"]
    assert found["sub"] == "reads 'mean_out', which is kept in fp32"
    assert found["mean"].startswith("ReduceMean stays in fp32")
    assert found["add_eps"] == "reads 'variance_out', which is kept in fp32"


def test_shape_arithmetic_is_no_decision() -> None:
    sketch = Sketch()
    x = sketch.input("x", ("n", 16))
    shape = sketch.op("Shape", x, name="shape")
    y = sketch.op("Reshape", x, shape, name="reshape", to="y")
    sketch.output(y, ("n", 16))
    assert decisions(sketch) == {"reshape": ""}


def test_an_unknown_operator_stays_wide_and_does_not_spread() -> None:
    sketch = Sketch()
    x = sketch.input("x", (2, 4, 4))
    y = sketch.op("Det", x, name="det")
    y = sketch.op("Relu", y, name="relu", to="y")
    sketch.output(y, (2,))
    assert decisions(sketch) == {
        "det": "Det stays in fp32: not known to be safe",
        "relu": "",
    }
