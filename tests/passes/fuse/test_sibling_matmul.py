from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.fuse.sibling_matmul import FuseSiblingMatMul
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def _siblings(widths: list[int], x: Sequence[int | str] = ("N", 3, 8)) -> Sketch:
    """One value, several products, each with a bias; all are outputs."""
    s = Sketch()
    value = s.op("Relu", s.input("x", x))
    for k, width in enumerate(widths):
        product = s.op("MatMul", value, s.weight(f"w{k}", 8, width), name=f"m{k}")
        s.output(s.op("Add", product, s.weight(f"b{k}", width)), None)
    return s


@settings(deadline=None, max_examples=15)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    x=st.sampled_from([["N", 8], ["N", 3, 8], [2, "N", 3, 8]]),
)
def test_same_numbers(widths: list[int], x: list[int | str]) -> None:
    model = _siblings(widths, x).model()
    keeps(FuseSiblingMatMul(), model, [feed(model, N=n) for n in (2, 3)])
    assert ops(model).count("MatMul") == 1
    assert ops(model).count("Split") == 1


def test_names_are_derived_and_leftovers_go() -> None:
    model = _siblings([4, 2, 2]).model()
    result = apply(FuseSiblingMatMul(), model)
    assert [r.node for r in result.rewrites] == ["m0"]
    [matmul] = [n for n in model.graph if n.op_type == "MatMul"]
    assert matmul.name == "m0_out.MatMul"
    assert [n for n in model.graph.initializers if n.startswith("w")] == []
    assert [v.name for v in model.graph.node("m0_out.Split").outputs] == [
        "m0_out",
        "m1_out",
        "m2_out",
    ]


def test_names_that_exist_are_not_taken() -> None:
    s = _siblings([4, 2])
    s.output(s.op("Neg", s.graph[0].outputs[0], name="m0_out.Split", to="m0_out.siblings"), None)
    apply(FuseSiblingMatMul(), s.model())


def test_products_of_other_values_stay_apart() -> None:
    s = Sketch()
    x, memory = s.input("x", [2, 8]), s.input("memory", [2, 8])
    q, k, v = (
        s.op("MatMul", value, s.weight(f"w{i}", 8, 4), name=f"m{i}")
        for i, value in enumerate((x, memory, memory))
    )
    s.output(s.op("Concat", q, k, v, axis=0), None)
    model = s.model()
    keeps(FuseSiblingMatMul(), model, [feed(model)])
    assert sorted(n.name for n in model.graph if n.op_type == "MatMul") == ["m0", "m1_out.MatMul"]


def test_a_shared_weight_stays() -> None:
    s = _siblings([4, 4])
    s.output(s.op("Neg", s.graph.initializers["w1"]), None)
    result = apply(FuseSiblingMatMul(), s.model())
    assert reasons(result) == [("m1", "weight 'w1' is also read elsewhere")]


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
    assert not apply(FuseSiblingMatMul(), model).rewrites
    assert to_bytes(model) == before


def test_outputs_of_the_graph_keep_their_names() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    for k in range(2):
        s.output(s.op("MatMul", x, s.weight(f"w{k}", 8, 5), to=f"y{k}"), [2, 5])
    model = s.model()
    keeps(FuseSiblingMatMul(), model, [feed(model)])
    assert [v.name for v in model.graph.outputs] == ["y0", "y1"]


def test_old_opsets_stay() -> None:
    s = Sketch(opset=12)
    x = s.input("x", [2, 8])
    for k in range(2):
        s.output(s.op("MatMul", x, s.weight(f"w{k}", 8, 5)), [2, 5])
    assert not FuseSiblingMatMul().run(s.model(), bare_context()).rewrites


def test_runner_catches_swapped_branches(monkeypatch) -> None:
    right = ir.Graph.register_initializer

    def reversed_columns(graph: ir.Graph, value: ir.Value) -> None:
        if value.name.endswith(".siblings.weight"):
            flipped = np.ascontiguousarray(value.const_value.numpy()[:, ::-1])
            value.const_value = ir.tensor(flipped, name=value.name)
        right(graph, value)

    model = _siblings([4, 4], [2, 8]).model()
    monkeypatch.setattr(ir.Graph, "register_initializer", reversed_columns)
    assert "at 'm0'" in caught(FuseSiblingMatMul(), model)
