"""canonicalize.names: unique names; inputs and outputs keep theirs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.testing import bare_context
from optcc.runtime.session import Session
from passes.canonicalize.names import CanonicalizeNames
from tests.models.small import chain, shadowing


def test_repeated_and_missing_names_are_mended():
    model = shadowing()
    signature = signature_of(model)
    assert lint(model, signature) != []
    result = CanonicalizeNames().run(model, bare_context())
    assert result.modified
    assert lint(model, signature) == []
    assert all(n.name for n in ir.traversal.RecursiveGraphIterator(model.graph))


def test_same_numbers():
    model, reference = shadowing(), shadowing()
    CanonicalizeNames().run(model, bare_context())
    for flag in (True, False):
        feed = {"x": np.float32([1, -2]), "c": np.array(flag)}
        before = Session(to_bytes(reference)).run(feed)
        after = Session(to_bytes(model)).run(feed)
        assert list(before) == list(after)
        np.testing.assert_array_equal(before["y"], after["y"])


def test_the_outer_value_keeps_the_name():
    model = shadowing()
    CanonicalizeNames().run(model, bare_context())
    assert model.graph[0].outputs[0].name == "t"
    branch = model.graph[2].attributes["then_branch"].as_graph()
    assert [v.name for v in branch.initializers.values()] == ["t_1"]


def test_inner_value_gives_way_to_an_output_name():
    model = shadowing()
    model.graph[0].outputs[0].name = "y"
    CanonicalizeNames().run(model, bare_context())
    assert [v.name for v in model.graph.outputs] == ["y"]
    assert model.graph[0].outputs[0].name == "y_1"


def test_left_out_outputs_stay_nameless():
    model = chain("Relu", "Neg")
    node = model.graph[0]
    node.resize_outputs(2)
    node.outputs[1].name = ""
    CanonicalizeNames().run(model, bare_context())
    assert node.outputs[1].name == ""


def test_second_run_changes_nothing():
    model = shadowing()
    CanonicalizeNames().run(model, bare_context())
    before = to_bytes(model)
    assert not CanonicalizeNames().run(model, bare_context()).modified
    assert to_bytes(model) == before


def test_same_names_in_every_run():
    first, second = shadowing(), shadowing()
    for model in (first, second):
        CanonicalizeNames().run(model, bare_context())
    assert to_bytes(first) == to_bytes(second)
