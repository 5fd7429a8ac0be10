"""graph.cost: counts that can be done by hand."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.cost import cost_of
from optcc.graph.edit import add_constant
from optcc.graph.io import to_bytes

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def model(text: str, **weights: tuple[int, ...]) -> ir.Model:
    names = ", ".join(f"float[{','.join(map(str, d))}] {n}" for n, d in weights.items())
    made = ir.from_onnx_text(f"{HEAD} g ({names}{', ' if names else ''}{text}")
    for name, dims in weights.items():
        value = next(v for v in made.graph.inputs if v.name == name)
        made.graph.inputs.remove(value)
        stored = add_constant(made.graph, name, np.ones(dims, np.float32))
        value.replace_all_uses_with(stored)
    return made


COUNTED = {
    "conv": (
        model(
            "float[2,4,9,9] x) => (float y) { y = Conv<group = 2, strides = [2, 2]>(x, w) }",
            w=(6, 2, 3, 3),
        ),
        2 * (2 * 6 * 4 * 4) * (2 * 3 * 3),
    ),
    "convtranspose": (
        model("float[1,4,5,5] x) => (float y) { y = ConvTranspose(x, w) }", w=(4, 3, 2, 2)),
        2 * (4 * 5 * 5) * (3 * 2 * 2),
    ),
    "matmul": (
        model("float[2,3,5] x) => (float y) { y = MatMul(x, w) }", w=(5, 7)),
        2 * (2 * 3 * 7) * 5,
    ),
    "gemm": (
        model("float[5,3] x) => (float y) { y = Gemm<transA = 1, transB = 1>(x, w) }", w=(7, 5)),
        2 * 3 * 7 * 5,
    ),
    "lstm": (
        model(
            "float[6,2,3] x) => (float y) { y = LSTM<hidden_size = 4>(x, w, r) }",
            w=(1, 16, 3),
            r=(1, 16, 4),
        ),
        2 * 6 * 2 * 16 * (3 + 4),
    ),
}


@pytest.mark.parametrize(("made", "flops"), COUNTED.values(), ids=COUNTED.keys())
def test_two_per_multiply_add(made: ir.Model, flops: int):
    before = to_bytes(made)
    cost = cost_of(made)
    assert cost.flops == flops
    assert cost.uncounted == ()
    assert to_bytes(made) == before


def test_weights_and_operators():
    made = model(
        "float[2,5] x) => (float y) { k = Constant<value = float[7] {1,1,1,1,1,1,1}>()"
        " t = MatMul(x, w) u = Add(t, k) y = Add(u, k) }",
        w=(5, 7),
    )
    cost = cost_of(made)
    assert (cost.parameters, cost.weight_bytes) == (42, 168)
    assert list(cost.operators.items()) == [("Add", 2), ("Constant", 1), ("MatMul", 1)]


def test_free_dims_are_assumed_and_said():
    made = model("float[N,3,H,W] x) => (float y) { y = Conv(x, w) }", w=(8, 3, 1, 1))
    assert cost_of(made).assumed == {"x": (1, 3, 224, 224)}
    cost = cost_of(made, {"x": (2, 3, 4, 5)})
    assert cost.assumed == {"x": (2, 3, 4, 5)}
    assert cost.flops == 2 * (2 * 8 * 4 * 5) * 3


def test_computed_sizes_are_followed():
    made = model(
        """float[N,4,6] x) => (float[N,2] y) {
          s = Shape(x) i = Constant<value_ints = [0]>() n = Gather(s, i)
          r = Constant<value_ints = [-1]>() t = Concat<axis = 0>(n, r)
          f = Reshape(x, t) y = MatMul(f, w) }""",
        w=(24, 2),
    )
    cost = cost_of(made, {"x": (3, 4, 6)})
    assert cost.flops == 2 * 3 * 2 * 24
    assert cost.uncounted == ()


def test_unknown_work_is_listed():
    made = ir.from_onnx_text(
        f"{HEAD} g (float[2,3] x, bool[2] c) => (float y) {{"
        " t = Compress<axis = 0>(x, c) v = Transpose(x) [one] y = MatMul(t, v) }"
    )
    cost = cost_of(made)
    assert (cost.flops, cost.uncounted) == (0, ("one",))
