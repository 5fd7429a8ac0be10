from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passes.fuse.projection_merge as merging
import passes.fuse.qkv as qkv
from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.eliminate.duplicates import EliminateDuplicates
from passes.fuse.projection import Projection
from passes.fuse.qkv import FuseQkv
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons, run


def _siblings(
    widths: list[int], x: Sequence[int | str] = ("N", 3, 8), biases: str | None = None
) -> Sketch:
    """One value and several products, all outputs; `biases` has a letter per product.

    a: Add of a vector, l: vector on the left, s: a scalar, r: [1, 1, columns], -: none.
    """
    s = Sketch()
    value = s.op("Relu", s.input("x", x))
    for k, width in enumerate(widths):
        y = s.op("MatMul", value, s.weight(f"w{k}", 8, width), name=f"m{k}")
        letter = "a" if biases is None else biases[k]
        if letter != "-":
            dims = {"s": (), "r": (1, 1, width)}.get(letter, (width,))
            pair = [y, s.weight(f"b{k}", *dims)]
            y = s.op("Add", *(pair[::-1] if letter == "l" else pair), name=f"a{k}")
        s.output(y, None)
    return s


@settings(deadline=None, max_examples=15)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    x=st.sampled_from([["N", 8], ["N", 3, 8], [2, "N", 3, 8]]),
    letters=st.lists(st.sampled_from("als-"), min_size=4, max_size=4),
)
def test_same_numbers(widths: list[int], x: list[int | str], letters: list[str]) -> None:
    model = _siblings(widths, x, "".join(letters)).model()
    keeps(FuseQkv(), model, [feed(model, N=n) for n in (2, 3)])
    assert ops(model).count("MatMul") == 1
    assert ops(model).count("Split") == 1


@pytest.mark.parametrize(
    ("biases", "adds"), [("aaa", 3), ("---", 0), ("a--", 1), ("-s-", 1), ("rlr", 3)]
)
@pytest.mark.parametrize("widths", [[8, 8, 8], [8, 4, 4], [8, 2, 2]], ids=["mha", "gqa", "mqa"])
def test_biases_stay_behind_the_split(biases: str, adds: int, widths: list[int]) -> None:
    model = _siblings(widths, biases=biases).model()
    keeps(FuseQkv(), model, [feed(model, N=2)])
    assert ops(model) == ["Relu", "MatMul", "Split", *["Add"] * adds]


@pytest.mark.parametrize(
    "common", [{}, {"transB": 1}, {"transA": 1}, {"alpha": 0.5}, {"alpha": 0.5, "beta": 2.0}]
)
@pytest.mark.parametrize("biased", [(True, True), (False, False), (True, False)])
def test_gemms(common: dict[str, float], biased: tuple[bool, bool]) -> None:
    s = Sketch()
    x = s.input("x", [8, 8])
    for k, width in enumerate((6, 4)):
        dims = (width, 8) if "transB" in common else (8, width)
        bias = [s.weight(f"b{k}", width)] if biased[k] else []
        y = s.op("Gemm", x, s.weight(f"w{k}", *dims), *bias, name=f"g{k}", **common)
        s.output(y, [8, width])
    model = s.model()
    keeps(FuseQkv(), model, [feed(model)])
    assert ops(model) == ["Gemm", "Split"]


def test_a_matmul_of_two_matrices_joins_gemms() -> None:
    s = Sketch()
    x = s.input("x", ["N", 8])
    s.output(s.op("Gemm", x, s.weight("w0", 8, 4), s.weight("b0", 4)), None)
    s.output(s.op("MatMul", x, s.weight("w1", 8, 2)), None)
    model = s.model()
    keeps(FuseQkv(), model, [feed(model, N=3)])
    assert ops(model) == ["Gemm", "Split"]


def test_gemms_that_differ_stay() -> None:
    s = Sketch()
    x = s.input("x", [8, 8])
    s.output(s.op("Gemm", x, s.weight("w0", 8, 4), name="g0", alpha=0.5), [8, 4])
    s.output(s.op("Gemm", x, s.weight("w1", 4, 8), name="g1", alpha=0.5, transB=1), [8, 4])
    result = apply(FuseQkv(), s.model())
    assert not result.rewrites
    assert ("g1", "its transposes is not that of 'g0'") in reasons(result)


def _stored(s: Sketch, tag: str, width: int, *, per: str, zero: bool, dtype=np.int8) -> ir.Value:
    dims = (width,) if per == "column" else ()
    spread = (s.rng.random(dims) * 0.1 + 0.01).astype(np.float32)
    low = 0 if dtype is np.uint8 else -127
    integers = s.rng.integers(low, 127, (8, width)).astype(dtype)
    inputs = [s.constant(f"{tag}.w", integers), s.constant(f"{tag}.s", spread)]
    if zero:
        inputs.append(s.constant(f"{tag}.z", np.zeros(dims, dtype)))
    return s.op("DequantizeLinear", *inputs, axis=1, name=f"{tag}.dq")


@pytest.mark.parametrize("per", ["column", "tensor"])
@pytest.mark.parametrize("zero", [True, False])
def test_weights_in_int8_stay_in_int8(per: str, zero: bool) -> None:
    s = Sketch()
    grid = [s.constant("s", np.float32(0.05)), s.constant("z", np.array(3, np.int8))]
    x = s.op("QuantizeLinear", s.input("x", ["N", 3, 8]), *grid)
    x = s.op("DequantizeLinear", x, *grid)
    for k, width in enumerate((8, 4, 4)):
        w = _stored(s, f"p{k}", width, per=per, zero=zero and k > 0)
        product = s.op("MatMul", x, w, name=f"m{k}")
        s.output(s.op("Add", product, s.weight(f"b{k}", width)), None)
    model = s.model()
    keeps(FuseQkv(), model, [feed(model, N=2)])
    want = ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "MatMul", "Split"]
    assert ops(model) == [*want, "Add", "Add", "Add"]
    [dq] = [
        n for n in model.graph if n.op_type == "DequantizeLinear" and "siblings" in n.inputs[0].name
    ]
    assert dq.inputs[0].dtype == ir.DataType.INT8
    assert dq.inputs[1].shape == [16]
    assert dq.attributes.get_int("axis") == 1


def test_integers_of_other_kinds_stay_apart() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    for k, dtype in enumerate((np.int8, np.uint8)):
        w = _stored(s, f"p{k}", 4, per="column", zero=True, dtype=dtype)
        s.output(s.op("MatMul", x, w, name=f"m{k}"), [2, 4])
    result = apply(FuseQkv(), s.model())
    assert not result.rewrites
    assert ("m0", "its stored is not that of 'm1'") in reasons(result)


def test_names_are_derived_and_leftovers_go() -> None:
    model = _siblings([4, 2, 2]).model()
    result = apply(FuseQkv(), model)
    assert [r.node for r in result.rewrites] == ["m0"]
    [matmul] = [n for n in model.graph if n.op_type == "MatMul"]
    assert matmul.name == "a0_out.MatMul"
    assert sorted(model.graph.initializers) == [
        "a0_out.bias",
        "a0_out.siblings.sizes",
        "a0_out.siblings.weight",
        "a1_out.bias",
        "a2_out.bias",
    ]
    adds = [n.outputs[0].name for n in model.graph if n.op_type == "Add"]
    assert adds == ["a0_out", "a1_out", "a2_out"]


def test_names_that_exist_are_not_taken() -> None:
    s = _siblings([4, 2])
    s.output(s.op("Neg", s.graph[0].outputs[0], name="a0_out.MatMul", to="a0_out.siblings"), None)
    apply(FuseQkv(), s.model())


def _attention(s: Sketch, sources: Sequence[ir.Value], width: int = 8) -> ir.Value:
    q, k, v = (
        s.op(
            "Add",
            s.op("MatMul", x, s.weight(f"w{i}", 8, width), name=f"m{i}"),
            s.weight(f"b{i}", width),
        )
        for i, x in enumerate(sources)
    )
    scores = s.op("MatMul", q, s.op("Transpose", k, perm=[0, 2, 1]), name="scores")
    return s.op("MatMul", s.op("Softmax", scores, axis=-1), v, name="mix")


@pytest.mark.parametrize(
    ("which", "merged", "lone"),
    [
        ("xmm", 1, {"m0": "m1"}),
        ("mxm", 1, {"m1": "m0"}),
        ("xxm", 1, {"m2": "m1"}),
        ("xmn", 0, {"m0": "m1", "m1": "m0", "m2": "m1"}),
    ],
)
def test_products_of_other_values_stay_apart(which: str, merged: int, lone: dict[str, str]) -> None:
    s = Sketch()
    values = {k: s.input(k, [2, 5, 8]) for k in sorted(set(which))}
    s.output(_attention(s, [values[k] for k in which]), [2, 5, 8])
    model = s.model()
    inputs = feed(model)
    before = run(model, inputs)
    result = apply(FuseQkv(), model)
    assert len(result.rewrites) == merged
    why = "it reads another value than {!r}, the other side of its attention"
    assert reasons(result) == [(n, why.format(partner)) for n, partner in lone.items()]
    for name, array in run(model, inputs).items():
        np.testing.assert_allclose(array, before[name], rtol=1e-4, atol=1e-5)


def test_a_shared_weight_stays() -> None:
    s = _siblings([4, 4])
    s.output(s.op("Neg", s.graph.initializers["w1"]), None)
    result = apply(FuseQkv(), s.model())
    assert reasons(result) == [("m1", "weight 'w1' is also read elsewhere")]


def test_a_computed_bias_stays() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    for k in range(2):
        s.output(
            s.op("Gemm", x, s.weight(f"w{k}", 8, 4), s.input(f"b{k}", [4]), name=f"g{k}"), [2, 4]
        )
    result = apply(FuseQkv(), s.model())
    assert reasons(result) == [(f"g{k}", f"its bias 'b{k}' is not constant") for k in range(2)]


@pytest.mark.parametrize("seen", ["output", "reader"])
def test_a_product_that_is_seen_keeps_its_bias_behind(seen: str) -> None:
    s = _siblings([4, 4, 4])
    product = s.graph.node("m1").outputs[0]
    s.output(product if seen == "output" else s.op("Neg", product), None)
    model = s.model()
    result = keeps(FuseQkv(), model, [feed(model, N=2)])
    assert ops(model).count("Add") == 3
    assert len(result.rewrites) == 1


@pytest.mark.parametrize("which", ["single", "depth", "computed", "rank", "left"])
def test_what_is_no_family_stays(which: str) -> None:
    s = Sketch()
    x = s.input("x", [2, 8, 8])
    s.output(s.op("MatMul", x, s.weight("w", 8, 4)), None)
    if which == "depth":
        s.output(s.op("MatMul", s.input("z", [2, 4]), s.weight("v", 4, 4)), None)
    elif which == "computed":
        s.output(s.op("MatMul", x, s.input("v", [8, 4])), None)
    elif which == "rank":
        s.output(s.op("MatMul", x, s.weight("v", 2, 8, 4)), None)
    elif which == "left":
        s.output(s.op("MatMul", s.weight("v", 4, 8), x), None)
    model = s.model()
    before = to_bytes(model)
    assert not apply(FuseQkv(), model).rewrites
    assert to_bytes(model) == before


def test_outputs_of_the_graph_keep_their_names() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    for k in range(2):
        s.output(s.op("MatMul", x, s.weight(f"w{k}", 8, 5), to=f"y{k}"), [2, 5])
    model = s.model()
    keeps(FuseQkv(), model, [feed(model)])
    assert [v.name for v in model.graph.outputs] == ["y0", "y1"]


def test_equal_chains_before_the_products_are_one_value_after_duplicates() -> None:
    s = Sketch()
    x = s.input("x", [2, 3, 8], ir.DataType.FLOAT16)
    for k in range(3):
        y = s.op("Cast", x, to_=ir.DataType.FLOAT.value)
        y = s.op("Reshape", s.op("Transpose", y, perm=[1, 0, 2]), s.integers(f"t{k}", 6, 8))
        s.output(s.op("MatMul", y, s.weight(f"w{k}", 8, 4)), [6, 4])
    model = s.model()
    apply(EliminateDuplicates(), model)
    keeps(FuseQkv(), model, [feed(model)])
    assert ops(model) == ["Cast", "Transpose", "Reshape", "MatMul", "Split"]


def test_nested_graphs() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    inner = Sketch()
    for k in range(2):
        inner.output(inner.op("MatMul", x, inner.weight(f"w{k}", 8, 5), to=f"y{k}"), [2, 5])
    other = Sketch()
    for k in range(2):
        other.output(other.op("Identity", other.weight(f"c{k}", 2, 5), to=f"z{k}"), [2, 5])
    condition = s.input("c", [], ir.DataType.BOOL)
    branches = {"then_branch": inner.graph, "else_branch": other.graph}
    first = s.op("If", condition, name="if", to=["r0", "r1"], **branches)
    for value in first.producer().outputs:
        s.output(value, [2, 5])
    model = s.model()
    assert len(apply(FuseQkv(), model).rewrites) == 1


def test_old_opsets_stay() -> None:
    s = Sketch(opset=12)
    x = s.input("x", [2, 8])
    for k in range(2):
        s.output(s.op("MatMul", x, s.weight(f"w{k}", 8, 5)), [2, 5])
    assert not FuseQkv().run(s.model(), bare_context()).rewrites


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), letters=st.lists(st.sampled_from("alr-"), min_size=3, max_size=3))
def test_spelling_does_not_matter(seed: int, letters: list[str]) -> None:
    """Other names, another order of branches, constants as nodes: one product all the same."""
    rng = np.random.default_rng(seed)
    s = Sketch()
    x = s.op("Relu", s.input("x", [2, 3, 8]), name=f"n{rng.integers(99)}_")
    values: list[ir.Value] = []
    for k in rng.permutation(3):
        w = s.weight(f"{rng.integers(10**6)}w{k}", 8, int(k) + 2)
        if rng.random() < 0.5:
            array = w.const_value
            w = s.op("Constant", value=ir.tensor(array.numpy(), name=f"c{k}"))
        y = s.op("MatMul", x, w)
        if letters[k] != "-":
            pair = [y, s.weight(f"{rng.integers(10**6)}b{k}", int(k) + 2)]
            y = s.op("Add", *(pair[::-1] if letters[k] == "l" else pair))
        values.append(y)
    for value in values:
        s.output(value, None)
    model = s.model()
    keeps(FuseQkv(), model, [feed(model)])
    assert ops(model).count("MatMul") == 1


def _swapped(graph: ir.Graph, members: Sequence[Projection], name: str) -> list[ir.Value]:
    first, second = (p.columns for p in members)
    twisted = [replace(members[0], columns=second), replace(members[1], columns=first)]
    return merging.merge(graph, twisted, name)


def _unbiased(graph: ir.Graph, members: Sequence[Projection], name: str) -> list[ir.Value]:
    return merging.merge(graph, [members[0], replace(members[1], bias=None)], name)


def _crossed(graph: ir.Graph, members: Sequence[Projection], name: str) -> list[ir.Value]:
    first, second = members
    nodes = (replace(first, node=second.node), replace(second, node=first.node))
    weights = [
        merging.add_constant(graph, f"twin{k}", merging._array(p.stored))
        for k, p in enumerate(nodes)
    ]
    for p, weight in zip((first, second), weights, strict=True):
        p.node.replace_input_with(1, weight)
    return merging.merge(graph, [first, second], name)


def _foreign(graph: ir.Graph, members: Sequence[Projection], name: str) -> list[ir.Value]:
    source = members[0].x.producer().inputs[0]
    return merging.merge(graph, [replace(p, x=source) for p in members], name)


@pytest.mark.parametrize(
    ("twin", "widths"),
    [(_unbiased, [4, 4]), (_crossed, [4, 4]), (_foreign, [4, 4]), (_swapped, [4, 6])],
    ids=["dropped-bias", "swapped-weights", "other-input", "swapped-sizes"],
)
def test_runner_catches_broken_twins(monkeypatch, twin, widths: list[int]) -> None:
    model = _siblings(widths, [2, 8]).model()
    monkeypatch.setattr(qkv, "merge", twin)
    assert "at 'm0'" in caught(FuseQkv(), model)
