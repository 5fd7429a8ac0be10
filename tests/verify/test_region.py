from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.edit import add_constant, constant_of, replace_node
from optcc.passkit.contract import Exactness, Rewrite
from optcc.verify.numeric import Outcome
from tests.models.regions import conv_bn, node, text, weight
from tests.verify.rewrites import check, checker, drop, fold_bn, replace_last, whole_rewrite

BROKEN, OK, OPEN = Outcome.BROKEN, Outcome.OK, Outcome.INCONCLUSIVE


def swap_last(w: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(w.swapaxes(-1, -2))


def one_channel(bias: np.ndarray) -> np.ndarray:
    bias = bias.copy()
    bias[-1] += 0.01
    return bias


@settings(max_examples=12, deadline=None)
@given(groups=st.sampled_from([1, 2, 4]), seed=st.integers(0, 100))
def test_a_correct_fold_is_conclusive(groups, seed):
    model = conv_bn(groups=groups, seed=seed)
    result = check(model, whole_rewrite(model, "bn"), fold_bn(model))
    assert result.verdict.outcome is OK, result.verdict
    assert result.failure is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w, b: (w, b * 1.01),
        lambda w, b: (w, b * 0),
        lambda w, b: (w * 1.001, b),
        lambda w, b: (swap_last(w), b),
        lambda w, b: (w.transpose(1, 0, 2, 3), b),
        lambda w, b: (w[::-1], b),
        lambda w, b: (w, one_channel(b)),
        lambda w, b: (w, b[::-1]),
        lambda w, b: (w.astype(np.float16), b),
    ],
    ids=[
        "bias * 1.01",
        "no bias",
        "weight * 1.001",
        "kernel transposed",
        "axes swapped",
        "channels reversed",
        "one bias element",
        "bias reversed",
        "weight through fp16",
    ],
)
def test_broken_folds_are_caught(spoil):
    model = conv_bn()
    result = check(model, whole_rewrite(model, "bn"), fold_bn(model, spoil=spoil))
    assert result.verdict.outcome is BROKEN
    assert result.failure is not None
    assert result.failure.before is not None
    assert result.failure.after is not None
    assert set(result.failure.feeds[0]) == {"x"}


def test_a_forgotten_epsilon_is_caught():
    model = conv_bn()
    assert check(model, whole_rewrite(model, "bn"), fold_bn(model, eps=1e-3)).verdict.outcome is (
        BROKEN
    )


@pytest.mark.parametrize("variance", [1e-3, 1e-6, 1e-12, 0.0])
def test_amplified_rounding_is_no_alarm(variance):
    model = conv_bn(variance=variance)
    assert check(model, whole_rewrite(model, "bn"), fold_bn(model)).verdict.outcome is OK


def test_amplified_rounding_does_not_hide_a_fault():
    model = conv_bn(variance=1e-12)
    twin = fold_bn(model, spoil=lambda w, b: (w, b * 1.01))
    assert check(model, whole_rewrite(model, "bn"), twin).verdict.outcome is BROKEN


def test_a_fold_may_not_promise_equal_bits():
    model = conv_bn()
    result = check(model, whole_rewrite(model, "bn"), fold_bn(model), Exactness.BITWISE)
    assert result.verdict.outcome is BROKEN


def test_a_lossy_change_is_measured():
    model = conv_bn()
    twin = fold_bn(model, spoil=lambda w, b: (w.astype(np.float16), b))
    verdict = check(model, whole_rewrite(model, "bn"), twin, Exactness.LOSSY).verdict
    assert verdict.outcome is OK
    assert verdict.allowed is None
    assert 1e-6 < (verdict.max_error or 0) < 1e-2


IDENTITY_OF_RELU = (
    "g (float[batch, 8] x) => (float[batch, 8] y) { a = Relu(x) [n] b = OP y = Neg(b) }"
)


def one_op(op: str) -> ir.Model:
    return text(IDENTITY_OF_RELU.replace("OP", op))


def drop_n(model: ir.Model, exactness: Exactness = Exactness.BITWISE) -> Outcome:
    target = node(model, "n")
    rewrite = Rewrite("n", "drop", (target.inputs[0],), (target.outputs[0],))
    return check(model, rewrite, drop(model, "n"), exactness).verdict.outcome


def test_dropping_an_identity_is_conclusive():
    assert drop_n(one_op("Identity(a)")) is OK


@pytest.mark.parametrize(
    "op",
    [
        "Neg(a)",
        "Abs(a)",
        "Relu(a)",
        "LeakyRelu<alpha = 0.99>(a)",
        "Floor(a)",
        "Clip(a, hi, hi)",
        "Softmax<axis = 1>(a)",
    ],
)
def test_dropping_a_node_that_does_something_is_caught(op):
    model = one_op(op)
    if "hi" in op:
        model = text(
            "g (float[batch, 8] x) => (float[batch, 8] y) <float lo = {-9.0}, float hi = {50.0}>"
            "{ a = Relu(x) [n] b = Clip(a, lo, hi) y = Neg(b) }"
        )
    assert drop_n(model) is BROKEN


def test_a_clip_that_the_model_never_reaches_may_not_be_dropped():
    model = text(
        "g (float[batch, 8] x) => (float[batch, 8] y) <float lo = {-500.0}, float hi = {500.0}>"
        "{ a = Tanh(x) [n] b = Clip(a, lo, hi) y = Neg(b) }"
    )
    assert drop_n(model) is BROKEN


def test_a_reshape_that_is_empty_at_batch_one_only_is_caught():
    model = text(
        "g (float[batch, 8] x) => (float[1, flat] y) <int64[2] s = {1, -1}>"
        "{ a = Relu(x) [n] b = Reshape(a, s) y = Neg(b) }"
    )
    assert drop_n(model) is BROKEN


def test_a_square_transpose_may_not_be_dropped():
    model = text(
        "g (float[batch, 3, 3] x) => (float[batch, 3, 3] y)"
        "{ a = Relu(x) [n] b = Transpose<perm = [0, 2, 1]>(a) y = Neg(b) }"
    )
    assert drop_n(model) is BROKEN


def test_a_mixed_mask_is_drawn_for_a_bool():
    model = text(
        "g (float[batch, 8] x) => (float[batch, 8] y) <float big = {100.0}>"
        "{ m = Less(x, big) [n] b = Where(m, x, big) y = Neg(b) }"
    )
    target = node(model, "n")
    rewrite = Rewrite("n", "drop", (target.inputs[0], target.inputs[1]), (target.outputs[0],))

    def action() -> list[ir.Value]:
        return replace_node(model.graph, [target], [], [target.outputs[0]], [target.inputs[1]])

    assert check(model, rewrite, action).verdict.outcome is BROKEN


def test_a_mask_of_the_least_float_hides_nothing():
    model = text(
        "g (float[batch, 6] x, bool[batch, 6] m) => (float[batch, 6] y)"
        "<float low = {-3.4028234e38}, float zero = {0.0}, float half = {0.5}>"
        "{ p = Where(m, zero, low) a = Add(x, p) [n] b = Mul(a, half) y = Identity(b) }"
    )
    half = weight(model, "half2", np.array(0.505, np.float32))
    target = node(model, "n")
    twin = ir.Node("", "Mul", [target.inputs[0], half], name="n2")
    rewrite = Rewrite("n", "scale", (target.inputs[0],), (target.outputs[0],))
    assert check(model, rewrite, replace_last(model, "n", twin)).verdict.outcome is BROKEN


SHAPES = """g (float[batch, 3, 4] x) => (float[batch, 12] y)
  <int64 zero = {0}, int64[1] ax = {0}, int64[1] rest = {-1}> {
    s = Shape(x) d = Gather(s, zero) u = Unsqueeze(d, ax) [n] t = Concat<axis = 0>(u, rest)
    y = Reshape(x, t) }"""


def fold_shape(target: list[int]) -> Outcome:
    model = text(SHAPES)
    old = node(model, "n")
    rewrite = Rewrite("n", "fold", (model.graph.inputs[0],), (old.outputs[0],))

    def action() -> list[ir.Value]:
        value = add_constant(model.graph, "t.value", np.array(target, np.int64))
        return replace_node(model.graph, [old], [], [old.outputs[0]], [value])

    return check(model, rewrite, action, Exactness.BITWISE).verdict.outcome


def test_a_free_dim_may_not_become_a_number():
    assert fold_shape([1, -1]) is BROKEN


def test_what_depends_on_fixed_dims_only_is_conclusive():
    model = text(
        "g (float[batch, 3, 4] x) => (float[batch, 3, 4] y)"
        "{ s = Shape<start = 1>(x) [n] t = Identity(s) e = ConstantOfShape(t) y = Add(x, e) }"
    )
    old = node(model, "n")
    rewrite = Rewrite("n", "fold", (model.graph.inputs[0],), (old.outputs[0],))

    def action() -> list[ir.Value]:
        value = add_constant(model.graph, "t.value", np.array([3, 4], np.int64))
        return replace_node(model.graph, [old], [], [old.outputs[0]], [value])

    assert check(model, rewrite, action, Exactness.BITWISE).verdict.outcome is OK


def fold_constant(value: np.ndarray, exactness: Exactness = Exactness.ROUNDING) -> Outcome:
    model = text(
        "g (float[batch, 2] x) => (float[batch, 2] y) <float[2] p = {1.0, 2.0}>"
        "{ [n] q = Mul(p, p) y = Add(x, q) }"
    )
    old = node(model, "n")

    def action() -> list[ir.Value]:
        new = add_constant(model.graph, "q.value", value)
        return replace_node(model.graph, [old], [], [old.outputs[0]], [new])

    rewrite = Rewrite("n", "fold", (), (old.outputs[0],))
    return check(model, rewrite, action, exactness).verdict.outcome


def test_a_region_without_inputs_is_conclusive():
    assert fold_constant(np.array([1, 4], np.float32), Exactness.BITWISE) is OK


@pytest.mark.parametrize(
    "value",
    [np.array([1, 4.001], np.float32), np.array([1, 4], np.float64), np.array([4], np.float32)],
    ids=["value", "type", "shape"],
)
def test_wrong_constants_are_caught(value):
    assert fold_constant(value) is BROKEN


def test_duplicate_initializers_are_compared_bit_by_bit():
    model = text(
        "g (float[2] x) => (float[2] y) <float[2] p = {0.0, 1.0}, float[2] q = {-0.0, 1.0}>"
        "{ a = Add(x, p) y = Add(a, q) }"
    )
    p, q = (model.graph.initializers[n] for n in "pq")
    result = check(model, Rewrite("q", "share", (), (q,)), lambda: [p], Exactness.BITWISE)
    assert result.verdict.outcome is BROKEN


def test_a_constant_result_of_varying_inputs_is_inconclusive():
    model = text(
        "g (float[batch, 8] x) => (float[batch, 8] y) <float zero = {0.0}>"
        "{ a = Relu(x) [n] b = Mul(a, zero) y = Add(x, b) }"
    )
    target = node(model, "n")
    twin = ir.Node("", "Mul", [target.inputs[0], target.inputs[1]], name="n2")
    other = ir.Node("", "Neg", [twin.outputs[0]], name="n3")
    rewrite = Rewrite("n", "copy", (target.inputs[0],), (target.outputs[0],))
    verdict = check(model, rewrite, replace_last(model, "n", twin, other)).verdict
    assert verdict.outcome is OPEN
    assert "zero" in verdict.reason


def test_equal_structure_decides_where_numbers_cannot():
    model = text(
        "g (float[batch, 8] x) => (float[batch, 8] y) <float zero = {0.0}>"
        "{ a = Relu(x) [n] b = Mul(a, zero) y = Add(x, b) }"
    )
    target = node(model, "n")
    copy = ir.Node("", "Mul", [target.inputs[0], target.inputs[1]], name="n2")
    rewrite = Rewrite("n", "copy", (target.inputs[0],), (target.outputs[0],))
    assert check(model, rewrite, replace_last(model, "n", copy)).verdict.outcome is OK


def test_random_nodes_are_inconclusive():
    model = text(
        "g (float[batch, 8] x) => (float[batch, 8] y){ [n] a = RandomNormalLike(x) y = Add(x, a) }"
    )
    rewrite = Rewrite("n", "keep", (model.graph.inputs[0],), (node(model, "n").outputs[0],))
    region = checker(model)
    reference = region.before(rewrite)
    assert "random" in reference.problem


def test_a_region_that_no_longer_runs_is_broken():
    model = conv_bn()
    twin = fold_bn(model, spoil=lambda w, b: (w[:, :2], b))
    verdict = check(model, whole_rewrite(model, "bn"), twin).verdict
    assert verdict.outcome is BROKEN
    assert "cannot be run after" in verdict.reason


def test_a_forgotten_output_is_broken():
    model = one_op("Identity(a)")
    rewrite = Rewrite("n", "drop", (), (node(model, "n").outputs[0],))
    region = checker(model)
    assert region.after(region.before(rewrite), [], Exactness.BITWISE).verdict.outcome is BROKEN


def test_an_understated_input_is_found_by_walking_back():
    model = text(
        "g (float[batch, 4] x, float[batch, 4] z) => (float[batch, 4] y)"
        "{ a = Relu(x) [n] b = Neg(a) y = Add(b, z) }"
    )
    target = node(model, "n")
    twin = ir.Node("", "Sub", [model.graph.inputs[1], target.inputs[0]], name="n2")
    rewrite = Rewrite("n", "twin", (target.inputs[0],), (target.outputs[0],))
    assert check(model, rewrite, replace_last(model, "n", twin)).verdict.outcome is BROKEN


def branchy() -> ir.Model:
    return text(
        """g (float[batch, 4] x, bool c) => (float[batch, 4] y) {
          r = Tanh(x)
          y = If (c) <
            then_branch = t () => (float[batch, 4] p) { i = Neg(r) [n] j = Identity(i) p = Exp(j) },
            else_branch = e () => (float[batch, 4] q) { q = Abs(r) }
          > }"""
    )


@pytest.mark.parametrize(("spoilt", "expected"), [(False, OK), (True, BROKEN)])
def test_regions_inside_a_branch_are_checked(spoilt, expected):
    model = branchy()
    body = next(iter(model.graph[1].attributes.values())).as_graph()
    target = next(n for n in body if n.name == "n")
    value = target.inputs[0]
    assert value is not None
    if spoilt:
        value = value.producer().inputs[0]
    rewrite = Rewrite("n", "drop", (target.inputs[0],), (target.outputs[0],))

    def action() -> list[ir.Value]:
        return replace_node(body, [target], [], [target.outputs[0]], [value])

    assert check(model, rewrite, action, Exactness.BITWISE).verdict.outcome is expected


def test_a_loop_body_is_checked_by_type_alone():
    model = text(
        """g (float[2, 4] x, int64 m, bool c) => (float[2, 4] y) {
          y = Loop (m, c, x) <
            body = b (int64 i, bool ci, float[2, 4] v) => (bool co, float[2, 4] w) {
              co = Identity(ci) k = Tanh(v) [n] j = Identity(k) w = Neg(j) }
          > }"""
    )
    body = next(iter(model.graph[0].attributes.values())).as_graph()
    target = next(n for n in body if n.name == "n")
    rewrite = Rewrite("n", "drop", (target.inputs[0],), (target.outputs[0],))

    def action() -> list[ir.Value]:
        return replace_node(body, [target], [], [target.outputs[0]], [target.inputs[0]])

    assert check(model, rewrite, action, Exactness.BITWISE).verdict.outcome is OK


def test_the_live_graph_is_left_as_it_was():
    model = branchy()
    uses = {v.name: len(v.uses()) for n in model.graph for v in n.outputs}
    region = checker(model)
    region.before(Rewrite("y", "look", tuple(model.graph.inputs), tuple(model.graph.outputs)))
    assert {v.name: len(v.uses()) for n in model.graph for v in n.outputs} == uses
    assert constant_of(model.graph.outputs[0]) is None


def test_the_same_check_twice_gives_the_same_verdict():
    verdicts = []
    for _ in range(2):
        model = conv_bn()
        verdicts.append(check(model, whole_rewrite(model, "bn"), fold_bn(model)).verdict)
    assert verdicts[0] == verdicts[1]
