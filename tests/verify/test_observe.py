from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import optcc.verify.observe as observe_module
from optcc.errors import BackendError
from optcc.passkit.contract import Exactness
from optcc.verify.boundary import Boundary
from optcc.verify.draw import draw_like, draw_spread, guess_seen
from optcc.verify.numeric import Outcome
from optcc.verify.observe import Observations, observe, see
from optcc.verify.whole import check_whole
from tests.models.regions import conv_bn, text

RNG = np.random.default_rng(0)


def probes(*shape: int) -> list[dict[str, np.ndarray]]:
    return [{"x": RNG.standard_normal((b, *shape)).astype(np.float32)} for b in (1, 3)]


def test_true_shapes_and_distributions_are_kept():
    model = conv_bn()
    seen = observe(model, probes(4, 6, 6))
    assert [s.shape for s in seen.seen["c"]] == [(1, 4, 6, 6), (3, 4, 6, 6)]
    assert seen.seen["c"][0].sample.size > 100
    assert [o["y"].shape for o in seen.outputs] == [(1, 4, 6, 6), (3, 4, 6, 6)]
    assert "x" in seen.seen


@pytest.mark.parametrize("budget", [1, 1 << 20])
def test_the_budget_changes_nothing_but_the_number_of_runs(monkeypatch, budget):
    model = conv_bn()
    feeds = probes(4, 6, 6)
    plain = observe(model, feeds)
    monkeypatch.setattr(observe_module, "_CHUNK_BYTES", budget)
    again = observe(model, feeds)
    assert set(again.seen) == set(plain.seen)
    assert np.array_equal(again.outputs[1]["y"], plain.outputs[1]["y"])


def test_what_shapes_alone_decide_is_fixed():
    model = text(
        "g (float[b, 4] x) => (float[b, 4] y) { s = Shape(x) e = ConstantOfShape(s) y = Add(x, e) }"
    )
    assert observe(model, probes(4)).fixed == {"s", "e"}


def test_a_value_that_cannot_be_returned_hides_no_other():
    model = text(
        "g (float[b, 4] x) => (float[b, 4] y)"
        "{ a = Neg(x) s = SequenceConstruct(a, a) c = ConcatFromSequence<axis = 0>(s)"
        "  r = ReduceMax<keepdims = 1>(c) y = Add(a, r) }"
    )
    seen = observe(model, probes(4)).seen
    assert "s" not in seen
    assert {"a", "c", "r", "y"} <= set(seen)


def test_no_probes_no_observations():
    assert observe(conv_bn(), []) == Observations()


def test_a_refused_probe_is_an_error():
    with pytest.raises(BackendError):
        observe(conv_bn(), probes(5, 6, 6))


def test_small_values_come_back_as_they_were():
    array = np.array([[1, 224, 3]])
    assert np.array_equal(draw_like(see(array), RNG, fixed=False), array)


def test_large_values_come_back_alike():
    relu = np.maximum(RNG.standard_normal((8, 1000)), 0).astype(np.float32)
    drawn = draw_like(see(relu), RNG, fixed=False)
    assert drawn.shape == relu.shape
    assert drawn.min() == 0.0
    assert (drawn == 0).mean() == pytest.approx(0.5, abs=0.1)


def test_bools_are_mixed_unless_they_are_fixed():
    ones = see(np.ones(64, np.bool_))
    assert 0 < draw_like(ones, RNG, fixed=False).sum() < 64
    assert draw_like(ones, RNG, fixed=True).all()


def test_spread_values_pass_the_reach():
    drawn = draw_spread(see(np.ones(2000, np.float32)), RNG, fixed=False, reach=50.0)
    assert np.abs(drawn).max() > 50.0
    assert np.isfinite(drawn).all()
    assert drawn.dtype == np.float32


def test_a_guess_needs_a_float_of_known_rank():
    def value(dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        return ir.Value(name="v", type=ir.TensorType(dtype), shape=shape)

    guess = guess_seen(value(ir.DataType.FLOAT, ir.Shape(["n", 4])), 2)
    assert guess is not None
    assert [s.shape for s in guess] == [(3, 4), (4, 4)]
    assert guess_seen(value(ir.DataType.INT64, ir.Shape([2])), 2) is None
    assert guess_seen(value(ir.DataType.FLOAT, None), 2) is None


def test_an_unseen_input_is_replaced_by_what_its_producer_reads():
    model = text("g (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) y = Abs(b) }")
    b = model.graph[1].outputs[0]
    seen = tuple(see(np.ones(2, np.float32) * k) for k in (1, 2))
    assert Boundary(Observations(seen={"x": seen})).of([b]) == (model.graph.inputs[0],)
    assert Boundary(Observations(seen={"a": seen})).of([b]) == (model.graph[0].outputs[0],)


def test_a_value_that_became_narrower_is_drawn_in_its_new_type():
    model = text("g (float16[2] x) => (float16[2] y) { y = Neg(x) }")
    seen = tuple(see(np.ones(2, np.float32) * k) for k in (1, 2))
    found = Boundary(Observations(seen={"x": seen})).seen(model.graph.inputs[0])
    assert found is not None
    assert found[0].dtype == np.float16


def negated(model: ir.Model) -> ir.Model:
    copy = model.clone()
    value = copy.graph.initializers["gamma"]
    assert value.const_value is not None
    value.const_value = ir.tensor(-value.const_value.numpy(), name="gamma")
    return copy


def test_the_whole_model_is_compared_with_what_it_gave():
    model = conv_bn()
    seen = observe(model, probes(4, 6, 6))
    same = check_whole(model, seen, model.clone(), Exactness.BITWISE, 0)
    assert same.outcome is Outcome.OK
    wrong = check_whole(model, seen, negated(model), Exactness.ROUNDING, 0)
    assert wrong.outcome is Outcome.BROKEN
    assert "output 'y'" in wrong.reason


HALF = "g (float16[b, 4] x) => (float16[b, 4] y) { a = Tanh(x) %s }"


def test_half_types_prove_no_more_than_rounding():
    """The runtime keeps Tanh wide for the Add after it, but not across an Identity."""
    before = text(HALF % "i = Identity(a) s = Add(i, i) y = Mul(s, x)")
    after = text(HALF % "s = Add(a, a) y = Mul(s, x)")
    seen = observe(before, [{"x": RNG.standard_normal((b, 4)).astype(np.float16)} for b in (16, 9)])
    verdict = check_whole(before, seen, after, Exactness.BITWISE, 0)
    assert verdict.outcome is Outcome.OK
    assert verdict.max_error is not None
    assert verdict.max_error > 0, "this model does not show what it is for"
    wrong = text(HALF % "s = Add(a, x) y = Mul(s, x)")
    assert check_whole(before, seen, wrong, Exactness.BITWISE, 0).outcome is Outcome.BROKEN


def test_a_whole_model_with_random_nodes_is_inconclusive():
    model = text("g (float[b, 4] x) => (float[b, 4] y) { r = RandomNormalLike(x) y = Add(x, r) }")
    seen = observe(model, probes(4))
    verdict = check_whole(model, seen, model.clone(), Exactness.ROUNDING, 0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "random" in verdict.reason


def test_a_constant_output_of_varying_inputs_is_inconclusive():
    model = text(
        "g (float[b, 4] x) => (float[b, 4] y) <float z = {0.0}> { a = Relu(x) y = Mul(a, z) }"
    )
    seen = observe(model, probes(4))
    verdict = check_whole(model, seen, model.clone(), Exactness.ROUNDING, 0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
