from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.request import VerifyMode
from optcc.errors import VerificationError
from optcc.graph.io import to_bytes
from optcc.graph.signature import signature_of
from optcc.passkit.contract import Exactness
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.outcome import WHOLE_MODEL, PassOutcome
from optcc.pipeline.plan import Stage
from optcc.pipeline.runner import Runner
from optcc.verify.observe import observe
from tests.models.regions import text
from tests.pipeline.passes_for_tests import (
    Base,
    Count,
    DropNodes,
    RemoveDead,
    Restless,
    ScaleWeights,
    Spoil,
    registry,
)
from tests.verify.rewrites import profile

BODY = """g (float[batch, 4] x) => (float[batch, 4] y)
  <float[4, 4] w = {%s}, float[4, 4] v = {%s}> {
  [i0] a = Identity(x) [m0] b = MatMul(a, w) [i1] c = Identity(b) [n0] d = Neg(c)
  [m1] e = MatMul(d, v) [i2] f = Identity(e) [n1] y = Tanh(f) }"""


def net() -> ir.Model:
    rng = np.random.default_rng(0)
    numbers = [", ".join(f"{x:.4f}" for x in rng.standard_normal(16)) for _ in range(2)]
    return text(BODY % tuple(numbers))


class Outcome:
    def __init__(self, model: ir.Model, *passes: Base, stage: dict | None = None, **options):
        self.model, self.saved, self.warned, self.events = model, [], [], []
        self.stage = Stage(name="s", passes=tuple(p.name for p in passes), **(stage or {}))
        self.ctx = RunnerContext(
            signature=signature_of(model),
            profile=profile(model),
            sink=lambda event, facts: self.events.append((event, facts)),
        )
        self.runner = Runner(
            registry=registry(*passes),
            save_reproducer=self._save,
            warn=self.warned.append,
            **options,
        )

    def _save(self, name, before, after, feeds):
        self.saved.append((name, before, after, feeds))
        return f"OUT.failed/{name}"

    def run(self) -> dict[str, PassOutcome]:
        return {o.name: o for o in self.runner.run_stage(self.model, self.stage, self.ctx)}

    def fails(self) -> VerificationError:
        before = to_bytes(self.model)
        with pytest.raises(VerificationError) as caught:
            self.run()
        assert to_bytes(self.model) == before, "the model must be rolled back"
        return caught.value


def op_types(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph]


def test_checks_every_rewrite_and_the_whole_model():
    model = net()
    outcomes = Outcome(model, DropNodes()).run()
    assert op_types(model) == ["MatMul", "Neg", "MatMul", "Tanh"]
    drop = outcomes["test.drop"]
    assert [a.node for a in drop.rewrites] == ["i0", "i1", "i2"]
    assert (drop.check.conclusive, drop.check.inconclusive, drop.check.verdict) == (3, 0, "pass")
    assert outcomes[WHOLE_MODEL].check.verdict == "pass"
    assert outcomes[WHOLE_MODEL].exactness is Exactness.BITWISE


def test_nothing_to_do_leaves_no_whole_model_record():
    model = net()
    before = to_bytes(model)
    outcomes = Outcome(model, DropNodes("Cast")).run()
    assert list(outcomes) == ["test.drop"]
    assert outcomes["test.drop"].check.verdict == "not checked"
    assert to_bytes(model) == before


def test_a_broken_rewrite_is_named_and_rolled_back():
    attempt = Outcome(net(), DropNodes(), DropNodes("Neg", "test.bad"))
    error = attempt.fails()
    assert "'test.bad' broke its promise at 'n0'" in error.what
    assert error.where == "n0"
    assert "--keep-going" in (error.hint or "")
    assert "OUT.failed/test.bad-n0" in (error.hint or "")


def test_the_reproducer_is_the_region_alone():
    attempt = Outcome(net(), DropNodes("Neg", "test.bad"))
    attempt.fails()
    [(name, before, after, feeds)] = attempt.saved
    assert name == "test.bad-n0"
    assert [n.op_type for n in before.graph] == ["Neg"]
    assert after is None or [n.op_type for n in after.graph] == []
    assert feeds[0]["c"].shape[1] == 4


def test_keep_going_leaves_out_the_one_rewrite():
    model = net()
    attempt = Outcome(model, DropNodes("Neg", "test.bad"), DropNodes(), keep_going=True)
    outcomes = attempt.run()
    assert op_types(model) == ["MatMul", "Neg", "MatMul", "Tanh"]
    assert outcomes["test.bad"].rewrites == []
    [reject] = outcomes["test.bad"].rejects
    assert reject.node == "n0"
    assert reject.reason.startswith("rolled back")
    assert len(outcomes["test.drop"].rewrites) == 3
    assert "n0" in attempt.warned[0]


def test_a_forgotten_reader_is_blamed_on_the_one_rewrite():
    attempt = Outcome(net(), DropNodes(), ScaleWeights(1.01, only="m1"))
    error = attempt.fails()
    assert "'test.scale' broke its promise at 'm1'" in error.what
    [(_, before, after, feeds)] = attempt.saved
    assert before is not None
    assert after is not None
    assert set(feeds[0]) == {"x"}


def test_a_forgotten_reader_can_be_left_out_too():
    model = net()
    outcomes = Outcome(model, ScaleWeights(1.01, only="m1"), keep_going=True).run()
    assert [a.node for a in outcomes["test.scale"].rewrites] == ["m0"]


@pytest.mark.parametrize("verify", list(VerifyMode))
def test_every_mode_catches_a_broken_pass(verify):
    error = Outcome(net(), DropNodes("Neg", "test.bad"), verify=verify).fails()
    assert "'test.bad' broke its promise at 'n0'" in error.what


def test_stage_mode_finds_the_guilty_among_the_innocent():
    attempt = Outcome(
        net(),
        DropNodes(),
        ScaleWeights(1.0, "test.fine"),
        ScaleWeights(1.01, "test.guilty", only="m1"),
        RemoveDead(),
        verify=VerifyMode.STAGE,
    )
    assert "'test.guilty' broke its promise at 'm1'" in attempt.fails().what


def test_stage_mode_checks_the_whole_model_only():
    outcomes = Outcome(net(), DropNodes(), verify=VerifyMode.STAGE).run()
    assert outcomes["test.drop"].check.verdict == "not checked"
    assert outcomes[WHOLE_MODEL].check.verdict == "pass"


def dead_net() -> ir.Model:
    return text("g (float[batch, 4] x) => (float[batch, 4] y) { [d] u = Abs(x) [k] y = Neg(x) }")


def test_dead_code_is_proved_by_structure():
    model = dead_net()
    check = Outcome(model, RemoveDead()).run()["test.dead"].check
    assert op_types(model) == ["Neg"]
    assert (check.conclusive, check.inconclusive) == (1, 0)


def negate_constant(model: ir.Model) -> None:
    value = model.graph.initializers["w"]
    assert value.const_value is not None
    value.const_value = ir.tensor(-value.const_value.numpy(), name="w")


def test_a_rewrite_that_names_no_region_is_checked_on_the_whole_model():
    error = Outcome(net(), Spoil(negate_constant, exactness=Exactness.ROUNDING)).fails()
    assert "'test.spoil' broke its promise at 'whole'" in error.what


def test_keep_going_leaves_out_a_whole_pass_that_has_no_region():
    model = net()
    passes = (Spoil(negate_constant, exactness=Exactness.ROUNDING), DropNodes())
    outcomes = Outcome(model, *passes, keep_going=True).run()
    assert "rolled back" in outcomes["test.spoil"].rejects[0].reason
    assert len(outcomes["test.drop"].rewrites) == 3


def rename_output(model: ir.Model) -> None:
    model.graph.outputs[0].name = "other"


def twice(model: ir.Model) -> None:
    next(n for n in model.graph if n.name == "n0").outputs[0].name = "b"


@pytest.mark.parametrize(("action", "words"), [(rename_output, "outputs were"), (twice, "'b'")])
def test_structural_faults_are_blamed_on_the_pass(action, words):
    error = Outcome(net(), DropNodes(), Spoil(action)).fails()
    assert "'test.spoil'" in error.what
    assert words in error.what


def test_a_lossy_pass_is_measured_and_never_judged():
    outcomes = Outcome(net(), Spoil(negate_constant, exactness=Exactness.LOSSY)).run()
    check = outcomes["test.spoil"].check
    assert check.verdict == "pass"
    assert check.allowed is None
    assert (check.max_error or 0) > 0.1
    assert outcomes[WHOLE_MODEL].exactness is Exactness.LOSSY


def make_infinite(model: ir.Model) -> None:
    value = model.graph.initializers["v"]
    assert value.const_value is not None
    value.const_value = ir.tensor(value.const_value.numpy() * np.float32(np.nan), name="v")


def test_a_lossy_pass_may_not_make_numbers_infinite():
    error = Outcome(net(), Spoil(make_infinite, exactness=Exactness.LOSSY)).fails()
    assert "not finite" in error.what


def test_repeats_until_nothing_changes():
    model = text(
        "g (float[batch, 4] x) => (float[batch, 4] y)"
        "{ [i0] a = Identity(x) [i1] b = Identity(a) [k] y = Neg(b) }"
    )
    attempt = Outcome(model, DropNodes(), stage={"repeat_until_stable": 4})
    outcomes = attempt.run()
    assert len(outcomes["test.drop"].rewrites) == 2
    assert attempt.warned == []
    assert [f["round"] for e, f in attempt.events if e == "pass"] == [1, 2]


def test_reaching_the_limit_is_reported():
    attempt = Outcome(net(), Restless(), stage={"repeat_until_stable": 3})
    attempt.run()
    assert "after 3 rounds" in attempt.warned[0]
    assert ("not-stable", {"stage": "s", "rounds": 3}) in attempt.events


def test_rejects_are_kept_and_traced():
    model = text("g (float[batch, 4] x) => (float[batch, 4] y) { [i0] y = Identity(x) }")
    attempt = Outcome(model, DropNodes())
    [reject] = attempt.run()["test.drop"].rejects
    assert reject.node == "i0"
    assert ("reject", {"name": "test.drop", "node": "i0", "reason": reject.reason}) in (
        attempt.events
    )


def test_the_trace_is_the_same_in_every_run():
    first, second = (Outcome(net(), DropNodes(), Count()) for _ in range(2))
    first.run()
    second.run()
    assert first.events == second.events
    assert any(e == "drawn" for e, _ in first.events)


def test_a_replay_sees_the_same_random_numbers():
    passes = (Count(), DropNodes("Neg", "test.bad"))
    kept, plain = Outcome(net(), *passes, keep_going=True), Outcome(net(), Count())
    kept.run()
    plain.run()
    drawn = [[f for e, f in o.events if e == "drawn"] for o in (kept, plain)]
    assert drawn[0] == drawn[1]


def test_a_bug_in_a_pass_keeps_its_traceback_and_names_the_pass():
    def crash(model: ir.Model) -> None:
        raise KeyError("oops")

    with pytest.raises(KeyError) as caught:
        Outcome(net(), Spoil(crash)).run()
    assert "test.spoil" in caught.value.__notes__[0]


def test_a_model_that_the_runtime_refuses_is_inconclusive_not_wrong():
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21, "their.domain" : 1]>'
        "g (float[2] x) => (float[2] y) { [i0] a = Identity(x) [k] y = their.domain.Odd(a) }"
    )
    outcomes = Outcome(model, DropNodes()).run()
    assert outcomes[WHOLE_MODEL].check.verdict == "inconclusive"
    assert "no probe" in outcomes[WHOLE_MODEL].rejects[0].reason


def test_initializers_that_are_inputs_vary():
    model = text(
        "g (float[batch, 4] x, float[4] p) => (float[batch, 4] y) { a = Add(x, p) y = Neg(a) }"
    )
    value = model.graph.inputs[1]
    value.const_value = ir.tensor(np.zeros(4, np.float32), name="p")
    model.graph.register_initializer(value)
    assert (
        "'test.bad' broke its promise" in Outcome(model, DropNodes("Add", "test.bad")).fails().what
    )


def test_context_services_run_inner_values_and_single_nodes():
    model = net()
    ctx = Outcome(model, DropNodes()).ctx
    x = np.ones((2, 4), np.float32)
    assert np.array_equal(ctx.run(model, {"x": x}, ["a", "y"])["a"], x)
    neg = next(n for n in model.graph if n.op_type == "Neg")
    assert np.array_equal(ctx.evaluate(neg, [x])[0], -x)
    assert list(ctx.samples()) == []


def test_a_stage_on_an_unchanged_graph_reuses_what_was_observed(monkeypatch):
    asked = []

    def counting(model, probes):
        asked.append(model)
        return observe(model, probes)

    monkeypatch.setattr("optcc.pipeline.runner.observe", counting)
    one = Outcome(net(), DropNodes("Cast"))
    one.run()
    one.run()
    assert len(asked) == 1
    rename = next(n for n in one.model.graph if n.name == "m0").outputs[0]
    rename.name = "renamed"
    one.run()
    assert len(asked) == 2
    one.model.graph.opset_imports[""] = 20
    one.run()
    assert len(asked) == 3
