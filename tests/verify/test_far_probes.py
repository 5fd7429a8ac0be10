"""Faults that only values beyond the usual ones show, and branches that only one probe takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.signature import signature_of
from optcc.passkit.contract import Exactness, Rewrite
from optcc.verify.draw import SPREADS, draw_spread
from optcc.verify.numeric import Outcome
from optcc.verify.observe import see
from optcc.verify.probes import make_probes
from tests.models.regions import node, text, weight
from tests.verify.rewrites import check, profile, replace_last

SMALL = "g (float[batch, 2] x) => (float[batch, 2] y) { a = Tanh(x) [n] b = Neg(a) y = Abs(b) }"


def clipped(model: ir.Model, limit: float) -> Callable[[], list[ir.Value]]:
    """Replace n by itself behind a Clip at plus and minus `limit`."""
    low, high = (weight(model, f"{s}", np.array(s * limit, np.float32)) for s in (-1, 1))
    clip = ir.Node("", "Clip", [node(model, "n").inputs[0], low, high], name="clip")
    return replace_last(model, "n", clip, ir.Node("", "Neg", clip.outputs, name="n2"))


@pytest.mark.parametrize("limit", [1.5, 6.0, 40.0, 900.0])
def test_a_bound_that_the_rewrite_invents_is_reached(limit):
    model = text(SMALL)
    target = node(model, "n")
    rewrite = Rewrite("n", "test", (target.inputs[0],), (target.outputs[0],))
    assert check(model, rewrite, clipped(model, limit)).verdict.outcome is Outcome.BROKEN


def test_two_elements_are_enough_for_both_far_ends():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drawn = draw_spread(see(np.ones((1, 4), np.float32)), rng, fixed=False, spread=SPREADS[1])
        assert drawn.max() > 5
        assert drawn.min() < -5


def test_the_wide_feed_follows_what_was_seen():
    seen = see(np.linspace(-100, 100, 64, dtype=np.float32))
    drawn = draw_spread(seen, np.random.default_rng(0), fixed=False, spread=SPREADS[1])
    assert np.abs(drawn).max() > 500
    assert len(np.unique(np.sign(drawn))) == 2


HALF = """g (float16[batch, 16] x) => (float16[batch, 8] y)
  { a = Relu(x) [n] b = MatMul(a, w) y = Neg(b) }"""


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1.0005, Outcome.OK), (1.03, Outcome.BROKEN), (1.05, Outcome.BROKEN)]
)
def test_half_precision_hides_one_unit_and_not_three_percent(factor, outcome):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 8)).astype(np.float16)
    model = text(HALF.replace("x)", "x, float16[16, 8] w)", 1))
    value = model.graph.inputs.pop(1)
    value.const_value = ir.tensor(w, name="w")
    model.graph.register_initializer(value)
    target = node(model, "n")
    other = weight(model, "w2", (w.astype(np.float32) * factor).astype(np.float16))
    twin = ir.Node("", "MatMul", [target.inputs[0], other], name="n2")
    rewrite = Rewrite("n", "test", (target.inputs[0],), (target.outputs[0],))
    action = replace_last(model, "n", twin)
    assert check(model, rewrite, action).verdict.outcome is outcome


BRANCHES = """g (float[batch, 4] x, bool c) => (float[batch, 4] y) {
  a = Relu(x)
  [n] b = If (c) <then_branch = t () => (float[batch, 4] p) { p = Neg(a) },
                  else_branch = e () => (float[batch, 4] q) { q = Exp(a) }>
  y = Abs(b) }"""


@pytest.mark.parametrize("seed", range(6))
def test_both_branches_run_in_the_probes_of_the_model(seed):
    model = text(BRANCHES)
    probes = make_probes(model, signature_of(model), profile(model), (), seed)
    assert [bool(p["c"]) for p in probes] == [True, False]


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_a_fault_in_one_branch_is_caught_whichever_it_is(branch):
    model = text(BRANCHES)
    target = node(model, "n")
    inputs = (model.graph.node(0).outputs[0], model.graph.inputs[1])
    rewrite = Rewrite("n", "test", inputs, tuple(target.outputs))

    def action() -> list[ir.Value]:
        live = target.attributes[branch].as_graph()
        old = live.node(0)
        kind = "Exp" if old.op_type == "Neg" else "Neg"
        made = ir.Node("", kind, old.inputs, name="spoilt")
        made.outputs[0].name, made.outputs[0].type = "spoilt", old.outputs[0].type
        live.append(made)
        live.outputs[0] = made.outputs[0]
        return list(target.outputs)

    result = check(model, rewrite, action, Exactness.ROUNDING)
    assert result.verdict.outcome is Outcome.BROKEN
