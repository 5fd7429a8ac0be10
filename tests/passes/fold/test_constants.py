from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.fold.constants import FoldConstants
from tests.models.sketch import Sketch
from tests.models.small import chain
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def _used(s: Sketch, folded: ir.Value) -> ir.Model:
    s.output(s.op("Mul", s.input("x", [2, 8]), folded), None)
    return s.model()


def test_chain_folds_in_one_run_and_keeps_the_name() -> None:
    s = Sketch()
    k = s.op("Neg", s.op("Exp", s.weight("w", 8)), to="folded")
    model = _used(s, k)
    keeps(FoldConstants(), model, [feed(model)])
    assert ops(model) == ["Mul"]
    assert list(model.graph.initializers) == ["folded"]


@pytest.mark.parametrize(
    ("op_type", "a", "b", "want"),
    [
        ("Div", [7, -7], [2, 2], [3, -3]),
        ("Mod", [7, -7], [3, 3], [1, 2]),
        ("BitShift", [1, 255], [4, 1], [16, 254]),
    ],
)
def test_integer_rules_are_those_of_onnx(
    op_type: str, a: list[int], b: list[int], want: list[int]
) -> None:
    s = Sketch()
    dtype = np.uint8 if op_type == "BitShift" else np.int32
    extra = {"direction": "LEFT"} if op_type == "BitShift" else {}
    operands = [s.constant(n, np.array(v, dtype)) for n, v in (("a", a), ("b", b))]
    s.output(s.op("Cast", s.op(op_type, *operands, to="r", **extra), to_=1), [2])
    model = s.model()
    apply(FoldConstants(), model)
    assert model.graph.outputs[0].producer().inputs[0].const_value.numpy().tolist() == want


def test_integer_division_by_zero_is_left_to_the_runtime() -> None:
    s = Sketch()
    a, b = s.constant("a", np.array([1], np.int32)), s.constant("b", np.array([0], np.int32))
    s.output(s.op("Div", a, b, name="div"), [1], ir.DataType.INT32)
    assert reasons(apply(FoldConstants(), s.model())) == [("div", "it divides an integer by zero")]


@pytest.mark.parametrize(
    ("op_type", "argument"),
    [("Expand", [1024, 1024]), ("Tile", [1024, 1024]), ("ConstantOfShape", [1024, 1024])],
)
def test_large_results_stay_computed(op_type: str, argument: list[int]) -> None:
    s = Sketch()
    sizes = s.integers("sizes", *argument)
    first = [] if op_type == "ConstantOfShape" else [s.weight("w", 1, 1)]
    s.output(s.op("Add", s.input("x", [1]), s.op(op_type, *first, sizes, name="grow")), None)
    model = s.model()
    [(node, reason)] = reasons(apply(FoldConstants(), model))
    assert node == "grow"
    assert reason.startswith("the result has 4194304 bytes")
    assert op_type in ops(model)


def test_a_weight_that_others_read_does_not_count_as_freed() -> None:
    s = Sketch()
    w = s.weight("w", 600, 600)
    x = s.input("x", [1, 600])
    s.output(s.op("MatMul", s.op("MatMul", x, w), s.op("Transpose", w, name="t")), None)
    [(node, reason)] = reasons(apply(FoldConstants(), s.model()))
    assert (node, reason) == ("t", "the result has 1440000 bytes, 1048576 are allowed")


def test_a_weight_of_its_own_may_be_transposed() -> None:
    s = Sketch()
    w = s.op("Transpose", s.weight("w", 600, 8), perm=[1, 0])
    s.output(s.op("Gemm", s.input("x", [2, 8]), w), None)
    model = s.model()
    keeps(FoldConstants(), model, [feed(model)])
    assert ops(model) == ["Gemm"]


def test_outputs_of_the_graph_keep_their_names() -> None:
    s = Sketch()
    s.input("x", [1])
    s.output(s.op("Exp", s.weight("w", 8), to="y"), [8])
    model = s.model()
    keeps(FoldConstants(), model, [feed(model)])
    assert ops(model) == ["Identity"]


def test_identity_of_a_large_weight_is_not_copied() -> None:
    s = Sketch()
    w = s.weight("w", 600, 600)
    x = s.op("MatMul", s.input("x", [2, 600]), w)
    s.output(s.op("MatMul", x, s.op("Identity", w)), None)
    model = s.model()
    keeps(FoldConstants(), model, [feed(model)])
    assert ops(model) == ["MatMul", "MatMul"]
    assert list(model.graph.initializers) == ["w"]


def test_several_outputs_fold_together() -> None:
    s = Sketch()
    s.op("Split", s.weight("w", 4, 8), s.integers("n", 1, 3), to=("a", "b"), axis=0, name="split")
    a, b = s.graph.node("split").outputs
    s.output(s.op("Add", s.op("Mul", s.input("x", [3, 8]), b), a), None)
    model = s.model()
    keeps(FoldConstants(), model, [feed(model)])
    assert ops(model) == ["Mul", "Add"]


def test_random_and_narrow_weights_stay() -> None:
    s = Sketch()
    noise = s.op("RandomNormalLike", s.weight("w", 8))
    q = s.constant("q", np.arange(8, dtype=np.int8))
    weight = s.op("DequantizeLinear", q, s.constant("scale", np.float32(0.1)))
    s.output(s.op("Add", s.op("Mul", s.input("x", [8]), weight), noise), None)
    model = s.model()
    before = to_bytes(model)
    assert not apply(FoldConstants(), model).rewrites
    assert to_bytes(model) == before


def test_default_of_an_input_is_no_constant() -> None:
    s = Sketch()
    w = s.weight("w", 8)
    s.graph.inputs.append(w)
    s.output(s.op("Neg", w), [8])
    assert not FoldConstants().run(s.model(), bare_context()).rewrites


def test_nested_graphs_fold_with_outer_constants() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x, bool c) => (float[2] y)
        <float[2] k = {1, 2}> {
          [If_0] y = If (c) <
            then_branch = t () => (float[2] a) { [n] n = Neg(k) [m] a = Mul(x, n) },
            else_branch = e () => (float[2] b) { [r] b = Relu(x) }
          > }"""
    )
    keeps(FoldConstants(), model, [{"x": np.array([3, 4], np.float32), "c": np.array(True)}])
    assert ops(model) == ["If", "Mul", "Relu"]


def test_untouched_model_keeps_its_bytes() -> None:
    model = chain("Neg", "Relu")
    before = to_bytes(model)
    assert not apply(FoldConstants(), model).rewrites
    assert to_bytes(model) == before


def test_runner_catches_a_wrong_result(monkeypatch) -> None:
    from passes.fold import constants

    right = constants.store_results

    def wrong(graph, node, arrays, name):
        return right(graph, node, {v: a + np.float32(0.01) for v, a in arrays.items()}, name)

    monkeypatch.setattr(constants, "store_results", wrong)
    s = Sketch()
    model = _used(s, s.op("Exp", s.weight("w", 8), name="exp"))
    assert "at 'exp'" in caught(FoldConstants(), model)
