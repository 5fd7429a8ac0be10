"""canonicalize.opset: every changed operator still computes the same, at the working version."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.errors import UnsupportedModelError
from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.shapes import infer_shapes
from optcc.graph.signature import signature_of
from optcc.passkit.testing import bare_context
from optcc.runtime.session import Session
from passes.canonicalize.opset import WORKING_OPSET, CanonicalizeOpset
from tests.models.old_operators import OLD_OPERATORS, OldOperator


def run(model: ir.Model, seed: int) -> np.ndarray:
    shape = [d if isinstance(d, int) else 3 for d in model.graph.inputs[0].shape]
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return Session(to_bytes(model)).run({"x": x})["y"]


@pytest.mark.parametrize("case", OLD_OPERATORS.values(), ids=OLD_OPERATORS.keys())
def test_same_numbers_at_the_working_version(case: OldOperator):
    model, reference = case.model(), case.model()
    infer_shapes(model)
    result = CanonicalizeOpset().run(model, bare_context())
    assert result.modified
    assert result.rejects == []
    assert tuple(n.op_type for n in model.graph) == case.wanted
    assert model.opset_imports[""] == WORKING_OPSET
    assert check(model) == []
    for seed in (1, 2):
        before = run(reference, seed)
        assert np.isfinite(before).all()
        assert len(np.unique(before)) > 1
        np.testing.assert_allclose(run(model, seed), before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", OLD_OPERATORS.values(), ids=OLD_OPERATORS.keys())
def test_names_and_signature_survive(case: OldOperator):
    model = case.model()
    infer_shapes(model)
    signature, node = signature_of(model), model.graph[-1]
    CanonicalizeOpset().run(model, bare_context())
    assert lint(model, signature) == []
    assert any(n.name == node.name for n in model.graph)


def test_wrong_rounding_would_be_seen():
    """The comparison above can fail: floor in place of ceil gives other numbers."""
    case = OLD_OPERATORS["resize-10-nearest-down"]
    model = case.model()
    CanonicalizeOpset().run(model, bare_context())
    model.graph[0].attributes.add(ir.AttrString("nearest_mode", "floor"))
    assert not np.allclose(run(model, 1), run(case.model(), 1))


@pytest.mark.parametrize("version", [21, 22, 24])
def test_newer_models_keep_their_version_and_bytes(version: int):
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : {version}]> g (float[2] x) => (float[2] y)'
        " { y = Relu(x) }"
    )
    before = to_bytes(model)
    assert not CanonicalizeOpset().run(model, bare_context()).modified
    assert to_bytes(model) == before


def test_second_run_changes_nothing():
    model = OLD_OPERATORS["softmax-11-inner"].model()
    CanonicalizeOpset().run(model, bare_context())
    before = to_bytes(model)
    assert not CanonicalizeOpset().run(model, bare_context()).modified
    assert to_bytes(model) == before


def test_nodes_of_subgraphs_are_raised_too():
    model = ir.from_onnx_text(
        """<ir_version: 7, opset_import: ["" : 11]>
        g (float[2,3] x, bool c) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] p) { p = ReduceSum<axes = [1], keepdims = 0>(x) },
            else_branch = e () => (float[2] q) { q = ReduceMean<axes = [1], keepdims = 0>(x) }
          > }"""
    )
    x = np.float32([[1, 2, 3], [4, 5, 7]])
    feeds = [{"x": x, "c": np.array(flag)} for flag in (True, False)]
    before = [Session(to_bytes(model)).run(f)["y"] for f in feeds]
    CanonicalizeOpset().run(model, bare_context())
    after = [Session(to_bytes(model)).run(f)["y"] for f in feeds]
    np.testing.assert_array_equal(before, after)
    branches = [a.as_graph() for a in model.graph[0].attributes.values()]
    assert all("axes" not in b[0].attributes and len(b[0].inputs) == 2 for b in branches)


REFUSED = {
    "it normalizes each position by itself (spatial=0)": OldOperator(
        7,
        "y = BatchNormalization <spatial = 0> (x, a, a, a, a)",
        "2,3",
        (),
        "float[3] a = {1, 2, 3}",
    ),
    "its mask is read, and the type of masks changed": OldOperator(
        7, "t, m = Dropout(x) y = Add(t, m)", "2,3", ()
    ),
    "it grows one dim and shrinks another, rounding each its own way": OldOperator(
        10, "y = Resize(x, s)", "1,2,4,4", (), "float[4] s = {1, 1, 2, 0.5}"
    ),
    "its coordinate mode 'tf_half_pixel_for_nn' no longer exists": OldOperator(
        11,
        'y = Resize<coordinate_transformation_mode = "tf_half_pixel_for_nn">(x, r, s)',
        "1,2,4,4",
        (),
        "float[0] r = {}, float[4] s = {1, 1, 2, 2}",
    ),
}


@pytest.mark.parametrize(("reason", "case"), REFUSED.items(), ids=["bn", "dropout", "mix", "tf"])
def test_what_cannot_be_raised_far_enough_is_refused(reason: str, case: OldOperator):
    model = case.model()
    with pytest.raises(UnsupportedModelError, match="cannot be raised") as error:
        CanonicalizeOpset().run(model, bare_context())
    assert reason in error.value.what
    assert f"{model.graph[0].name!r}" in error.value.what
    assert error.value.hint


def test_an_obstacle_later_on_keeps_the_version_before_it():
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,C,3,3] x, float[2] s, float[2] b) => (float y) {
          r = ReduceMean<axes = [1]>(x)
          n = GroupNormalization<num_groups = 2>(x, s, b)
          y = Add(n, r) }"""
    )
    model.opset_imports[""] = 18
    model.graph[0].attributes.pop("axes")
    model.graph[1].name = "norm"
    result = CanonicalizeOpset().run(model, bare_context())
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("norm", "its number of channels is not known")
    ]
    assert model.opset_imports[""] == 20
