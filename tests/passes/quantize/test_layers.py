from __future__ import annotations

import onnx_ir as ir
import pytest

from passes.quantize.layers import output_axis, refusal
from tests.models.sketch import Sketch


def _node(model: ir.Model, name: str = "layer") -> ir.Node:
    return next(n for n in model.graph if n.name == name)


def _gemm(**attributes: object) -> ir.Node:
    s = Sketch()
    x = s.input("x", [32, 32])
    s.output(s.op("Gemm", x, s.weight("w", 32, 32), name="layer", **attributes), None)
    return _node(s.model())


def test_a_gemm_is_taken() -> None:
    assert refusal(_gemm()) is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"transA": 1}, "its data is transposed (transA)"),
        ({"alpha": 0.5}, "alpha is 0.5"),
        ({"beta": 2.0}, "beta is 2"),
    ],
)
def test_a_gemm_that_kernels_do_not_know_is_refused(
    attributes: dict[str, object], reason: str
) -> None:
    assert refusal(_gemm(**attributes)) == reason


@pytest.mark.parametrize(("trans_b", "axis"), [(0, 1), (1, 0)])
def test_axis_of_a_gemm_follows_trans_b(trans_b: int, axis: int) -> None:
    assert output_axis(_gemm(transB=trans_b)) == axis


@pytest.mark.parametrize(
    ("op_type", "dims", "axis"),
    [("Conv", (8, 4, 3, 3), 0), ("ConvTranspose", (4, 8, 3, 3), 1), ("MatMul", (6, 40), 1)],
)
def test_axis_of_the_others(op_type: str, dims: tuple[int, ...], axis: int) -> None:
    s = Sketch()
    x = s.input("x", [2, 4, 6, 6])
    s.output(s.op(op_type, x, s.weight("w", *dims), name="layer"), None)
    node = _node(s.model())
    assert output_axis(node) == axis
    assert refusal(node) is None


def test_an_attention_core_is_refused() -> None:
    s = Sketch()
    a, b = s.input("a", [2, 8, 8]), s.input("b", [2, 8, 8])
    s.output(s.op("MatMul", a, b, name="layer"), None)
    assert "both operands are activations" in str(refusal(_node(s.model())))


def test_a_constant_on_the_left_is_refused() -> None:
    s = Sketch()
    s.output(s.op("MatMul", s.weight("w", 32, 32), s.input("x", [32, 32]), name="layer"), None)
    assert refusal(_node(s.model())) == "its constant 'w' is the left operand"


def test_a_weight_that_is_an_input_is_refused() -> None:
    s = Sketch()
    x, w = s.input("x", [1, 4, 8, 8]), s.input("w", [8, 4, 3, 3])
    s.output(s.op("Conv", x, w, name="layer"), None)
    assert refusal(_node(s.model())) == "its weight 'w' is not a constant"


def test_constant_data_is_refused() -> None:
    s = Sketch()
    s.input("x", [1])
    data = s.weight("data", 1, 4, 8, 8)
    s.output(s.op("Conv", data, s.weight("w", 8, 4, 3, 3), name="layer"), None)
    assert refusal(_node(s.model())) == "its data 'data' is a constant"


def test_a_batch_of_matrices_is_refused() -> None:
    s = Sketch()
    s.output(s.op("MatMul", s.input("x", [3, 8, 8]), s.weight("w", 3, 8, 8), name="layer"), None)
    assert "has rank 3" in str(refusal(_node(s.model())))


def test_other_types_are_refused() -> None:
    s = Sketch()
    x = s.input("x", [1, 4, 8, 8], ir.DataType.DOUBLE)
    w = s.weight("w", 8, 4, 3, 3, dtype=float)
    s.output(s.op("Conv", x, w, name="layer"), None, ir.DataType.DOUBLE)
    assert refusal(_node(s.model())) == "'x' is DOUBLE, only FLOAT layers are quantized"


def test_a_tiny_layer_is_refused_and_a_busy_one_is_not() -> None:
    s = Sketch()
    x = s.input("x", ["N", 4, 1, 1])
    y = s.input("y", ["N", 4, 32, 32])
    w = s.weight("w", 4, 4, 1, 1)
    s.output(s.op("Conv", x, w, name="gate"), ["N", 4, 1, 1])
    s.output(s.op("Conv", y, w, name="map"), ["N", 4, 32, 32])
    model = s.model()
    assert refusal(_node(model, "gate")) == ("too small to profit: 16 multiply-adds per sample")
    assert refusal(_node(model, "map")) is None
