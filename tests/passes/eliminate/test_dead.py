from __future__ import annotations

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.eliminate.dead import EliminateDead
from tests.models.sketch import Sketch
from tests.models.small import chain, with_if
from tests.passes.promise import apply, feed, keeps, ops


def _with_dead_chain() -> Sketch:
    s = Sketch()
    x = s.input("x", [2, 8])
    s.op("Relu", s.op("Add", x, s.weight("unread", 8)))
    s.output(s.op("Neg", x), [2, 8])
    return s


def test_removes_chains_and_their_constants() -> None:
    model = _with_dead_chain().model()
    keeps(EliminateDead(), model, [feed(model)])
    assert ops(model) == ["Neg"]
    assert not model.graph.initializers


def test_says_how_much_went() -> None:
    result = apply(EliminateDead(), _with_dead_chain().model())
    assert [r.what for r in result.rewrites] == ["3 unread nodes and initializers removed"]


def test_removes_nodes_of_subgraphs_and_what_only_they_read() -> None:
    model = with_if()
    model.graph.outputs[0] = model.graph[0].outputs[0]
    result = EliminateDead().run(model, bare_context())
    assert ops(model) == ["Relu"]
    assert result.rewrites


def test_unread_inputs_stay() -> None:
    s = Sketch()
    s.input("unused", [1])
    s.output(s.op("Neg", s.input("x", [2])), [2])
    model = s.model()
    apply(EliminateDead(), model)
    assert [v.name for v in model.graph.inputs] == ["unused", "x"]


def test_untouched_model_keeps_its_bytes() -> None:
    model = chain("Neg", "Relu")
    before = to_bytes(model)
    assert not apply(EliminateDead(), model).rewrites
    assert to_bytes(model) == before
