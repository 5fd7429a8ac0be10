"""Run the stages of a plan and hold every pass to its promise.

After every pass the graph is linted. With `VerifyMode.EACH` every rewrite is checked where it
happens; what has no region (dead code, renaming) is proved by the digest of the whole graph or
checked on the whole model. Every stage ends with a check of the whole model. A failure rolls the
model back and is blamed on one rewrite, which is then fatal or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from optcc.config.request import VerifyMode
from optcc.errors import BackendError, VerificationError
from optcc.graph.walk import all_values, graphs_of
from optcc.passkit.contract import Feed, Rejection
from optcc.pipeline import snapshot
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.ledger import BrokenPromiseError
from optcc.pipeline.outcome import PassOutcome
from optcc.pipeline.plan import Stage
from optcc.pipeline.registry import PassRegistry
from optcc.pipeline.replay import Replay
from optcc.pipeline.stage_run import StageRun
from optcc.verify.fingerprint import Fingerprints
from optcc.verify.observe import Observations, observe
from optcc.verify.probes import make_probes
from optcc.verify.region import RegionChecker, RegionFailure

__all__ = ["Runner", "SaveReproducer"]

SaveReproducer = Callable[[str, ir.Model | None, ir.Model | None, Sequence[Feed]], str | None]
"""Writes the smallest model that shows a fault; returns where, or None when nothing is kept."""


def _keep_nothing(
    name: str, before: ir.Model | None, after: ir.Model | None, feeds: Sequence[Feed]
) -> str | None:
    return None


def _say_nothing(text: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _State:
    """What decides how a graph runs and what its values are called.

    Attributes:
        digest: Of the graph.
        names: Of all values, in graph order.
    """

    digest: bytes
    names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Runner:
    """Runs stages.

    Attributes:
        registry: Where passes come from.
        verify: Check each rewrite, or only each stage.
        keep_going: Leave a faulty rewrite out and go on, instead of stopping.
        save_reproducer: Called once per failure with a short name, the smallest model before and
            after, and feeds that tell them apart.
        warn: Called with one line when a rewrite was left out or a stage is not stable.
    """

    registry: PassRegistry
    verify: VerifyMode = VerifyMode.EACH
    keep_going: bool = False
    save_reproducer: SaveReproducer = _keep_nothing
    warn: Callable[[str], None] = _say_nothing
    _prints: Fingerprints = field(default_factory=Fingerprints)
    _latest: tuple[_State, Observations] | None = None

    def run_stage(self, model: ir.Model, stage: Stage, ctx: RunnerContext) -> list[PassOutcome]:
        """Change `model` in place by the passes of `stage`.

        Returns:
            One record per pass, in order, and one for the check of the whole model when anything
            changed.

        Raises:
            VerificationError: A pass broke its promise (unless `keep_going`). The model is then
                what it was before the stage.
        """
        before, state = snapshot.take(model), ctx.save()
        now = self._state_of(model)
        seen = self._observe(model, ctx, now)
        left_out: dict[str, dict[str, str]] = {}
        while True:
            replay = Replay(self.registry, stage, before, ctx, state, left_out)
            checker = self._checker(model, seen, ctx)
            attempt = StageRun(model, replay, seen, checker, self._prints)
            attempt.digest = now.digest if checker is not None else b""
            try:
                stable = attempt.run()
            except BrokenPromiseError as broken:
                snapshot.restore(model, before)
                ctx.restore(state)
                self._settle(broken, stage, ctx, left_out)
                state = ctx.save()
                continue
            return self._finish(attempt, stable, ctx, left_out)

    def _checker(
        self, model: ir.Model, seen: Observations, ctx: RunnerContext
    ) -> RegionChecker | None:
        if self.verify is VerifyMode.STAGE:
            return None
        return RegionChecker(model, seen, ctx.seed)

    def _observe(self, model: ir.Model, ctx: RunnerContext, now: _State) -> Observations:
        """Run the model on its probes, unless an equal one was run last."""
        if self._latest is not None and self._latest[0] == now and not model.functions:
            return self._latest[1]
        try:
            if ctx.probes is None:
                probes = make_probes(model, ctx.signature, ctx.profile, ctx.samples(), ctx.seed)
                ctx.probes = tuple(probes)
            seen = observe(model, ctx.probes)
        except BackendError as error:
            ctx.emit("unobserved", reason=error.what)
            return Observations()
        self._latest = (now, seen)
        return seen

    def _state_of(self, model: ir.Model) -> _State:
        values = (v for g in graphs_of(model) for v in all_values(g))
        names = tuple(v.name or "" for v in values)
        return _State(self._prints.of_graph(model.graph), names)

    def _settle(
        self,
        broken: BrokenPromiseError,
        stage: Stage,
        ctx: RunnerContext,
        left_out: dict[str, dict[str, str]],
    ) -> None:
        """Stop with the name of the rewrite, or note that it is to be left out."""
        ctx.emit("rollback", name=broken.pass_name, node=broken.node, reason=broken.reason)
        path = self._reproduce(broken)
        nodes = left_out.setdefault(broken.pass_name, {})
        again = broken.part in nodes
        if not self.keep_going or again:
            ctx.flush()
            raise _error(broken, path, keep_going=self.keep_going)
        nodes[broken.part] = f"rolled back: {broken.reason}"
        at = f" at {broken.node!r}" if broken.node else ""
        self.warn(f"{broken.pass_name}{at} was left out of {stage.name!r}: {broken.reason}")

    def _reproduce(self, broken: BrokenPromiseError) -> str | None:
        failure = broken.failure or RegionFailure(None, None, ())
        name = f"{broken.pass_name}-{broken.node}" if broken.node else broken.pass_name
        return self.save_reproducer(name, failure.before, failure.after, failure.feeds)

    def _finish(
        self,
        attempt: StageRun,
        stable: bool,
        ctx: RunnerContext,
        left_out: dict[str, dict[str, str]],
    ) -> list[PassOutcome]:
        for name, nodes in left_out.items():
            kept = [Rejection(n, r) for n, r in nodes.items()]
            attempt.outcomes[name].rejects += kept
        if not stable:
            stage = attempt.replay.stage
            ctx.emit("not-stable", stage=stage.name, rounds=stage.repeat_until_stable)
            rounds = f"{stage.repeat_until_stable} rounds"
            self.warn(f"stage {stage.name!r} still changed the graph after {rounds}")
        ctx.flush()
        return list(attempt.outcomes.values())


def _error(broken: BrokenPromiseError, path: str | None, *, keep_going: bool) -> VerificationError:
    at = f" at {broken.node!r}" if broken.node else ""
    hint = "add --keep-going to leave this rewrite out"
    if keep_going:
        hint = f"the pass ignores that {broken.node!r} is to be left out; report it to its author"
    if path is not None:
        hint = f"{hint}; {path} reproduces it"
    what = f"pass {broken.pass_name!r} broke its promise{at}: {broken.reason}"
    return VerificationError(what, hint=hint, where=broken.node or broken.pass_name)
