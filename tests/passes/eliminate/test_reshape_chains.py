from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.edit import add_constant
from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import node_like
from passes.eliminate.reshape_chains import EliminateReshapeChains
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

STEPS = {
    "merge": lambda s, x: s.op("Reshape", x, s.integers("to6", -1, 6)),
    "flat": lambda s, x: s.op("Reshape", x, s.integers("to1", -1)),
    "split": lambda s, x: s.op("Reshape", x, s.integers("to23", -1, 2, 3)),
    "flatten": lambda s, x: s.op("Flatten", x),
    "unsqueeze": lambda s, x: s.op("Unsqueeze", x, s.integers("axes", 1)),
    "last": lambda s, x: s.op("Unsqueeze", x, s.integers("axes_last", -1)),
}


def chain(*steps: str, dims=("n", 2, 3), tail: bool = True) -> ir.Model:
    s = Sketch()
    x = s.op("Neg", s.input("x", list(dims)))
    for step in steps:
        x = STEPS[step](s, x)
    s.output(s.op("Neg", x) if tail else x, None)
    return s.model()


@settings(deadline=None, max_examples=30)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=4, unique=True))
def test_a_chain_becomes_one(steps):
    model = chain(*steps)
    before = len(ops(model))
    keeps_all(model)
    assert ops(model).count("Reshape") + ops(model).count("Flatten") <= 1
    assert len(ops(model)) < before


def keeps_all(model: ir.Model) -> None:
    """One round of the pass works on each pair; the stage repeats it."""
    from optcc.graph.shapes import infer_shapes

    before = [(f := feed(model, n=n), result(model, f)) for n in (1, 4)]
    while apply(EliminateReshapeChains(), model).rewrites:
        infer_shapes(model)
    for feeds, wanted in before:
        assert result(model, feeds) == wanted


def result(model: ir.Model, feeds) -> list[tuple[tuple[int, ...], bytes]]:
    from tests.passes.promise import run

    return [(a.shape, a.tobytes()) for a in run(model, feeds).values()]


def test_there_and_back_is_nothing():
    s = Sketch()
    x = s.op("Neg", s.input("x", [4, 6]))
    x = s.op("Reshape", s.op("Reshape", x, s.integers("a", 2, 12)), s.integers("b", 4, 6))
    s.output(s.op("Neg", x), None)
    model = s.model()
    keeps(EliminateReshapeChains(), model, [feed(model)])
    assert ops(model) == ["Neg", "Neg"]


def test_a_squeeze_undoes_an_unsqueeze():
    s = Sketch()
    x = s.op("Neg", s.input("x", ["n", 6]))
    x = s.op("Unsqueeze", x, s.integers("axes", 0, 3))
    s.output(s.op("Neg", s.op("Squeeze", x, s.integers("back", 3))), None)
    model = s.model()
    keeps(EliminateReshapeChains(), model, [feed(model, n=2)])
    assert ops(model) == ["Neg", "Reshape", "Neg"]


def test_two_open_dims_stay():
    result = apply(EliminateReshapeChains(), chain("unsqueeze", "last", dims=("n", "m", 3)))
    assert [r for _, r in reasons(result)] == ["more than one dim of the result is open"]


def test_a_copied_dim_at_a_graph_output_stays():
    s = Sketch()
    x = s.op("Reshape", s.input("x", ["n", 2, 3]), s.integers("a", -1, 6))
    s.output(s.op("Reshape", x, s.integers("b", 0, 6), name="root"), ["lie", 6])
    assert reasons(apply(EliminateReshapeChains(), s.model())) == [
        ("root", "the dims of the result are not known")
    ]


def test_an_empty_tensor_stays():
    s = Sketch()
    x = s.op("Reshape", s.input("x", [0, 2, 3]), s.integers("a", 0, 6))
    s.output(s.op("Neg", s.op("Unsqueeze", x, s.integers("b", 0), name="root")), None)
    assert ("root", "a dim of the result is 0") in reasons(
        apply(EliminateReshapeChains(), s.model())
    )


def test_what_others_read_stays():
    s = Sketch()
    x = s.op("Flatten", s.input("x", ["n", 2, 3]), name="first")
    s.output(s.op("Neg", x), None)
    s.output(s.op("Unsqueeze", x, s.integers("b", 0), name="root"), None)
    ((_, reason),) = reasons(apply(EliminateReshapeChains(), s.model()))
    assert "is also read by" in reason


class DimsInAnotherOrder(EliminateReshapeChains):
    """The classic fault: as many elements, other dims."""

    def rewrite(self, m: Match, graph):
        dims = add_constant(graph, "wrong", np.array([-1, 3, 2], np.int64))
        return node_like(m.root, [m.value("x"), dims], op_type="Reshape", attributes={}).outputs


def test_runner_catches_a_broken_twin():
    said = caught(DimsInAnotherOrder(), chain("merge", "split", tail=True))
    assert "eliminate.reshape-chains" in said
