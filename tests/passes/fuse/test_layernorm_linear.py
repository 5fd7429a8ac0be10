from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.testing import BareContext, bare_context
from optcc.verify.reference import open_model
from passes.eliminate.identity import EliminateIdentity
from passes.fuse.layernorm_linear import FuseLayerNormLinear
from passes.fuse.linear import Linear
from tests.models.disguise import disguise
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

HALF = ir.DataType.FLOAT16
PLAIN = {"bias": False, "scale": "ones"}


def _normalized(
    s: Sketch, x: ir.Value, *, bias: bool = True, scale: str = "drawn", dtype: type = np.float32
) -> ir.Value:
    drawn = s.rng.random(6) + 0.5 if scale == "drawn" else np.ones(6)
    inputs = [x, s.constant("gamma", drawn.astype(dtype))]
    if bias:
        inputs.append(s.weight("beta", 6, dtype=dtype))
    return s.op("LayerNormalization", *inputs, name="norm", axis=-1)


def _product(s: Sketch, y: ir.Value, tag: str, *, bias: bool = True, dtype: type = np.float32):
    z = s.op("MatMul", y, s.weight(f"{tag}.w", 6, 4, dtype=dtype), name=tag)
    if bias:
        z = s.op("Add", s.weight(f"{tag}.b", 4, dtype=dtype), z, name=f"{tag}.bias")
    return z


def _model(
    tags: str = "qkv",
    *,
    product_bias: bool = True,
    dtype: type = np.float32,
    dims: tuple[int | str, ...] = ("N", 3, 6),
    **norm: object,
) -> Sketch:
    """x -> Neg -> LayerNormalization -> one product for each of `tags`."""
    s = Sketch()
    kind = HALF if dtype is np.float16 else ir.DataType.FLOAT
    y = _normalized(s, s.op("Neg", s.input("x", dims, kind)), dtype=dtype, **norm)
    for tag in tags:
        s.output(_product(s, y, tag, bias=product_bias, dtype=dtype), None, kind)
    return s


def _feeds(model: ir.Model) -> list[dict[str, np.ndarray]]:
    return [feed(model, seed=n, N=n) for n in (1, 3)]


def _is_plain(model: ir.Model) -> bool:
    norm = next(n for n in model.graph if n.op_type == "LayerNormalization")
    return len(norm.inputs) == 2 and bool((norm.inputs[1].const_value.numpy() == 1).all())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dims", [("N", 6), ("N", 3, 6), ("N", 2, 3, 6)])
@pytest.mark.parametrize("tags", ["f", "qkv"])
@pytest.mark.parametrize("bias", [True, False])
def test_same_numbers(tags: str, dims: tuple[int | str, ...], dtype: type, bias: bool) -> None:
    model = _model(tags, dims=dims, dtype=dtype, bias=bias).model()
    before = ops(model)
    keeps(FuseLayerNormLinear(), model, _feeds(model))
    assert ops(model) == before
    assert _is_plain(model)


def test_products_without_bias_take_a_scale() -> None:
    model = _model(bias=False, product_bias=False).model()
    keeps(FuseLayerNormLinear(), model, _feeds(model))
    assert _is_plain(model)


@settings(deadline=None, max_examples=20)
@given(
    turned=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, 2.0]),
    c=st.sampled_from([None, (), (4,), (1, 4)]),
    bias=st.booleans(),
)
def test_gemm(
    turned: bool, alpha: float, beta: float, c: tuple[int, ...] | None, bias: bool
) -> None:
    s = Sketch()
    y = _normalized(s, s.op("Neg", s.input("x", ["N", 6])), bias=bias)
    w = s.weight("w", *((4, 6) if turned else (6, 4)))
    more = [] if c is None else [s.weight("c", *c)]
    options = {"transB": int(turned), "alpha": alpha, "beta": beta}
    s.output(s.op("Gemm", y, w, *more, name="gemm", **options), None)
    model = s.model()
    keeps(FuseLayerNormLinear(), model, _feeds(model))
    assert _is_plain(model)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), tags=st.sampled_from(["f", "qkv"]))
def test_disguises_are_seen_through(seed: int, tags: str) -> None:
    model = disguise(_model(tags).model(), seed)
    EliminateIdentity().run(model, bare_context())
    keeps(FuseLayerNormLinear(), model, _feeds(model))
    assert _is_plain(model)


def test_old_constants_go() -> None:
    model = _model("f").model()
    result = apply(FuseLayerNormLinear(), model)
    assert [(r.node, r.what) for r in result.rewrites] == [("norm", "scale and bias into 'f'")]
    assert sorted(model.graph.initializers) == ["f.bias_out.bias", "f_out.weight", "norm_out.scale"]


@pytest.mark.parametrize("where", ["residual", "right", "gelu"])
def test_leaves_other_readers_alone(where: str) -> None:
    s = _model("qk")
    y, x = s.graph.node("norm").outputs[0], s.graph[0].outputs[0]
    if where == "residual":
        s.output(s.op("Add", y, x, name="other"), None)
    elif where == "right":
        s.output(s.op("MatMul", s.weight("left", 2, 3), y, name="other"), None)
    else:
        s.output(s.op("Gelu", y, name="other"), None)
    model = s.model()
    before = to_bytes(model)
    [(node, why)] = reasons(apply(FuseLayerNormLinear(), model))
    assert (node, why) == ("norm", "'other' reads it too, which is no matrix product from the left")
    assert to_bytes(model) == before


def test_readers_of_the_shape_do_not_count() -> None:
    s = _model()
    shape = s.op("Shape", s.graph.node("norm").outputs[0])
    s.output(shape, [3], ir.DataType.INT64)
    model = s.model()
    keeps(FuseLayerNormLinear(), model, _feeds(model))
    assert _is_plain(model)


def test_leaves_a_graph_output_alone() -> None:
    s = _model()
    s.output(s.graph.node("norm").outputs[0], None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "'norm_out' is a graph output")]


def test_leaves_shared_weights_alone() -> None:
    s = _model("qk")
    s.output(s.op("Neg", s.graph.initializers["k.w"]), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "weight 'k.w' also feeds another node")]


def test_leaves_one_weight_of_two_products_alone() -> None:
    s = _model("q")
    y, w = s.graph.node("norm").outputs[0], s.graph.initializers["q.w"]
    s.output(s.op("MatMul", y, w, name="twin"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "weight 'q.w' also feeds another node")]


def test_leaves_computed_weights_alone() -> None:
    s = _model("q")
    y = s.graph.node("norm").outputs[0]
    s.output(s.op("MatMul", y, s.input("given", [6, 4]), name="other"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "the weight of 'other' is not a constant")]


def test_leaves_weights_of_higher_rank_alone() -> None:
    s = _model("q")
    y = s.graph.node("norm").outputs[0]
    s.output(s.op("MatMul", y, s.weight("high", 1, 6, 4)), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "weight 'high' is not of rank 2")]


def test_leaves_a_product_without_bias_alone_when_there_is_one_to_take() -> None:
    result = apply(FuseLayerNormLinear(), _model("q", product_bias=False).model())
    want = "'q' has no bias that could take the one before it"
    assert reasons(result) == [("norm", want)]


def test_an_add_of_something_else_is_no_bias() -> None:
    s = Sketch()
    x = s.op("Neg", s.input("x", [2, 3, 6]))
    z = s.op("MatMul", _normalized(s, x), s.weight("w", 6, 6), name="q")
    s.output(s.op("Add", z, x), None)
    [(_, why)] = reasons(apply(FuseLayerNormLinear(), s.model()))
    assert why == "'q' has no bias that could take the one before it"


def test_leaves_a_transposed_operand_alone() -> None:
    s = Sketch()
    y = _normalized(s, s.op("Neg", s.input("x", [4, 6])))
    s.output(s.op("Gemm", y, s.weight("w", 4, 3), transA=1, name="gemm"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "'gemm' transposes its data")]


def test_leaves_a_bias_that_differs_by_row_alone() -> None:
    s = Sketch()
    y = _normalized(s, s.op("Neg", s.input("x", [4, 6])))
    s.output(s.op("Gemm", y, s.weight("w", 6, 3), s.weight("c", 4, 1), name="gemm"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "the bias of the Gemm differs from row to row")]


def test_leaves_several_axes_alone() -> None:
    s = Sketch()
    x = s.op("Neg", s.input("x", [2, 4, 6]))
    y = s.op("LayerNormalization", x, s.weight("gamma", 4, 6), name="norm", axis=1)
    s.output(_product(s, y, "q"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "it normalizes more than the last axis")]


def test_leaves_computed_scales_alone() -> None:
    s = Sketch()
    x = s.op("Neg", s.input("x", [2, 4, 6]))
    y = s.op("LayerNormalization", x, s.input("gamma", [6]), name="norm")
    s.output(_product(s, y, "q"), None)
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "its scale or bias is not constant")]


def test_leaves_an_overflow_alone() -> None:
    s = _model("q", dtype=np.float16)
    gamma = s.graph.initializers["gamma"]
    gamma.const_value = ir.tensor(np.full(6, 6e4, np.float16))
    result = apply(FuseLayerNormLinear(), s.model())
    assert reasons(result) == [("norm", "the folded weight does not fit float16")]


def test_plain_normalizations_keep_their_bytes() -> None:
    model = _model(**PLAIN).model()
    before = to_bytes(model)
    result = apply(FuseLayerNormLinear(), model)
    assert (result.rewrites, result.rejects, to_bytes(model)) == ([], [], before)


class Sampled(BareContext):
    """Runs the model on its feeds and gives inner values too."""

    def run_all(self, model: ir.Model, feeds: Sequence[Feed], values: Sequence[str]) -> list[Feed]:
        with open_model(model, also=values) as session:
            return [session.run(f, values) for f in feeds]


def _with_channel(size: float, scale: float) -> ir.Model:
    """One channel of the normalized data is large by `size`, with a scale of `scale`."""
    s = _model("qk")
    factors = np.array([1, size, 1, 1, 1, 1], np.float32)
    neg, norm = s.graph[0], s.graph.node("norm")
    norm.replace_input_with(0, s.op("Mul", neg.outputs[0], s.constant("factors", factors)))
    s.graph.sort()
    gamma = np.array([1, scale, 1, 1, 1, 1], np.float32)
    s.graph.initializers["gamma"].const_value = ir.tensor(gamma)
    return s.model()


@pytest.mark.parametrize(("size", "scale", "folds"), [(1, 50, True), (50, 0.02, False)])
def test_samples_tell_what_int8_would_lose(size: float, scale: float, folds: bool) -> None:
    model = _with_channel(size, scale)
    ctx = Sampled([feed(model, seed=k, N=4) for k in range(3)])
    result = FuseLayerNormLinear().run(model, ctx)
    assert bool(result.rewrites) == folds
    if not folds:
        [(node, why)] = reasons(result)
        assert node == "norm"
        assert why.endswith(" dB noisier in int8")


def test_without_samples_every_fold_is_made() -> None:
    assert apply(FuseLayerNormLinear(), _with_channel(50, 0.02)).rewrites


class LostBias(FuseLayerNormLinear):
    def folded(self, linear: Linear, scale: np.ndarray, bias: np.ndarray):
        return super().folded(linear, scale, np.zeros_like(bias))


class WrongSide(FuseLayerNormLinear):
    """Scales columns where it should scale rows."""

    def folded(self, linear: Linear, scale: np.ndarray, bias: np.ndarray):
        _, moved = super().folded(linear, scale, bias)
        w = linear.weight_array()
        return (w * scale[: w.shape[1]]).astype(w.dtype), moved


@pytest.mark.parametrize("twin", [LostBias, WrongSide])
def test_runner_catches_broken_twins(twin: type[FuseLayerNormLinear]) -> None:
    model = _model(dims=(4, 3, 6)).model()
    assert "'fuse.layernorm-linear' broke its promise at 'norm'" in caught(twin(), model)
