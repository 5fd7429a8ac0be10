"""Types in the graph: what becomes fp16, what stays, and what an engine makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.simulation import simulate_narrow
from optcc.passkit.testing import BareContext, bare_context
from optcc.verify.numeric import sqnr_db
from passes.precision.fp16 import PrecisionFp16
from tests.backends.build import build, needs_rtx, profile
from tests.models.quantized import small_cnn
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, reasons, run

HALF = ir.DataType.FLOAT16


def narrowed(model: ir.Model) -> tuple[ir.Model, BareContext]:
    ctx, signature = bare_context(), signature_of(model)
    PrecisionFp16().run(model, ctx)
    assert lint(model, signature) == []
    assert check(model) == []
    return model, ctx


def computing_in_half(model: ir.Model) -> list[str]:
    return [n.name or "" for n in model.graph if n.op_type != "Cast" and n.outputs[0].dtype == HALF]


def test_everything_between_input_and_output_is_narrow() -> None:
    model, ctx = narrowed(small_cnn())
    assert computing_in_half(model) == ["conv", "relu", "pool", "flatten", "gemm"]
    assert [n.op_type for n in model.graph].count("Cast") == 2
    assert ctx.plan is not None
    assert {d.node: d.wanted for d in ctx.plan.decisions} == dict.fromkeys(
        ["conv", "relu", "pool", "flatten", "gemm"], "fp16"
    )


def test_constants_are_converted_and_the_old_ones_go() -> None:
    model, _ = narrowed(small_cnn())
    kinds = {name: v.dtype for name, v in model.graph.initializers.items()}
    assert kinds == {"w1.fp16": HALF, "w2.fp16": HALF}


def test_close_to_the_original() -> None:
    model = small_cnn()
    feeds = feed(model, n=3)
    before = run(model, feeds)["y"]
    apply(PrecisionFp16(), model)
    after = run(simulate_narrow(model), feeds)["y"]
    assert sqnr_db(before, after) > 50
    assert not np.array_equal(before, after)


def masked(reader: str) -> ir.Model:
    """MatMul + Add of a mask with the least fp32 number, read by `reader`."""
    sketch = Sketch()
    x = sketch.input("x", (2, 16))
    h = sketch.op("MatMul", x, sketch.weight("w", 16, 16), name="heavy")
    row = np.zeros(16, np.float32)
    row[8:] = np.finfo(np.float32).min
    y = sketch.op("Add", h, sketch.constant("mask", row), name="masked")
    sketch.output(sketch.op(reader, y, name="reader", to="y"), (2, 16))
    return sketch.model()


def test_a_constant_that_does_not_fit_keeps_its_node_wide() -> None:
    model = masked("Relu")
    result = apply(PrecisionFp16(), model)
    assert computing_in_half(model) == ["heavy"]
    assert reasons(result) == [
        (
            "masked",
            "constant 'mask' does not fit fp16: its largest value is 3.4e+38, fp16 ends at 65504",
        ),
        ("reader", "reads 'masked_out', which is kept in fp32"),
    ]


def test_the_mask_of_a_softmax_becomes_a_number_that_fits() -> None:
    model = masked("Softmax")
    feeds = feed(model)
    before = run(model, feeds)["y"]
    apply(PrecisionFp16(), model)
    assert computing_in_half(model) == ["heavy", "masked", "reader"]
    after = run(simulate_narrow(model), feeds)["y"]
    assert np.isfinite(after).all()
    assert (after[:, 8:] == 0).all()
    assert np.abs(after - before).max() < 0.02


def test_scales_of_resize_are_not_of_the_elements_type() -> None:
    sketch = Sketch()
    x = sketch.input("x", (1, 2, 4, 4))
    scales = sketch.constant("scales", np.array([1, 1, 2, 2], np.float32))
    y = sketch.op("Resize", x, None, scales, name="resize", mode="nearest", to="y")
    sketch.output(y, (1, 2, 8, 8))
    model, _ = narrowed(sketch.model())
    assert computing_in_half(model) == ["resize"]
    assert model.graph.initializers["scales"].dtype == ir.DataType.FLOAT


def test_one_cast_serves_all_readers() -> None:
    sketch = Sketch()
    x = sketch.input("x", (2, 16))
    a = sketch.op("MatMul", x, sketch.weight("w1", 16, 16), name="a")
    b = sketch.op("MatMul", x, sketch.weight("w2", 16, 16), name="b")
    sketch.output(sketch.op("Add", a, b, name="sum", to="y"), (2, 16))
    model, _ = narrowed(sketch.model())
    assert [n.name for n in model.graph if n.op_type == "Cast"] == ["x.fp16.cast", "y.cast"]


def test_an_inner_value_that_is_also_an_output_keeps_its_name_and_type() -> None:
    sketch = Sketch()
    x = sketch.input("x", (2, 16))
    h = sketch.op("MatMul", x, sketch.weight("w1", 16, 16), name="a", to="h")
    y = sketch.op("Relu", h, name="b", to="y")
    sketch.output(h, (2, 16))
    sketch.output(y, (2, 16))
    model, _ = narrowed(sketch.model())
    assert [v.name for v in model.graph.outputs] == ["h", "y"]
    assert computing_in_half(model) == ["a", "b"]
    assert model.graph.node("b").inputs[0].name == "h.fp16"


def test_second_run_changes_nothing() -> None:
    model, _ = narrowed(small_cnn())
    before = to_bytes(model)
    assert apply(PrecisionFp16(), model).rewrites == []
    assert to_bytes(model) == before


def test_same_bytes_each_time() -> None:
    assert len({to_bytes(narrowed(small_cnn())[0]) for _ in range(3)}) == 1


def test_a_rewrite_that_was_rolled_back_is_left_out() -> None:
    class Refusing(BareContext):
        def apply(self, rewrite, action):
            return rewrite.node != "pool" and super().apply(rewrite, action)

    model, ctx, signature = small_cnn(), Refusing(), signature_of(small_cnn())
    result = PrecisionFp16().run(model, ctx)
    assert lint(model, signature) == []
    assert check(model) == []
    assert reasons(result) == [("pool", "rolled back after a failed check")]
    assert computing_in_half(model) == ["conv", "relu", "flatten", "gemm"]


def test_overflow_in_between_shows_in_the_simulated_graph() -> None:
    """Twice 300 each way: the middle is 90000, which fp16 does not have."""
    sketch = Sketch()
    x = sketch.input("x", (2, 4))
    big = sketch.constant("big", np.array(300, np.float32))
    y = sketch.op("Mul", x, big, name="up")
    y = sketch.op("Mul", y, big, name="up_more")
    y = sketch.op("Div", y, big, name="down")
    y = sketch.op("Div", y, big, name="down_more", to="y")
    sketch.output(y, (2, 4))
    model = sketch.model()
    feeds = {"x": np.linspace(1, 2, 8, dtype=np.float32).reshape(2, 4)}
    before = run(model, feeds)["y"]
    apply(PrecisionFp16(), model)
    assert np.isfinite(before).all()
    assert np.isinf(run(simulate_narrow(model), feeds)["y"]).all()


@needs_rtx
def test_an_engine_computes_in_half(tmp_path: Path) -> None:
    model, ctx = narrowed(small_cnn())
    assert ctx.plan is not None
    wanted = {d.node: d.wanted for d in ctx.plan.decisions}
    outcome = build(model, tmp_path, shapes=profile(x=(4, 3, 8, 8)), wanted=wanted)
    assert {n.node: n.got for n in outcome.nodes if n.op_type in ("Conv", "Gemm")} == {
        "conv": "fp16",
        "gemm": "fp16",
    }
    assert outcome.fallbacks() == ()


@pytest.mark.parametrize("name", ["y.fp16", "conv_out.fp16", "x.fp16"])
def test_names_that_are_taken_are_not_given_twice(name: str) -> None:
    model = small_cnn()
    model.graph.node("relu").outputs[0].name = name
    narrowed(model)
