"""How good is the checker? Run a wrong pass on a graph under the real runner, and know the truth.

The truth does not come from the checker: every rewrite is also applied alone and unchecked, and the
outputs of the whole model are compared on many random inputs of several batch sizes and magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import profile_for
from optcc.errors import BackendError, VerificationError
from optcc.graph.io import clone, to_bytes
from optcc.graph.signature import signature_of
from optcc.passkit.contract import Feed, Pass, Rewrite
from optcc.passkit.testing import BareContext
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.outcome import PassOutcome
from optcc.pipeline.plan import Stage, load_plan
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from optcc.pipeline.runner import Runner
from optcc.runtime.session import OptimizationLevel, Session
from tests.models.generated import Generated, random_feeds

__all__ = ["Subject", "Trial", "registry_with"]

_FEEDS = 24
_LIMIT = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-2}
_OF_ROUNDING = 16.0
_ROLLED_BACK = "rolled back: "

Results = list[Feed]


@dataclass(frozen=True)
class Trial:
    """One wrong pass on one graph.

    Attributes:
        fired: Nodes at which it changes something when nobody checks.
        harmful: Those whose rewrite alone changes the outputs of the model.
        changed: Whether all of them together change the outputs.
        blamed: Pass and node of every roll-back, and whether the region check saw it.
        differs: Whether the outputs still differ after the checked run.
        error: Message of a run that was given up.
    """

    label: str
    name: str
    fired: tuple[str, ...]
    harmful: tuple[str, ...] = ()
    changed: bool = False
    blamed: tuple[tuple[str, str, bool], ...] = ()
    differs: bool = False
    error: str = ""

    @property
    def bad(self) -> bool:
        """Whether the truth is that the pass spoils this model."""
        return self.changed or bool(self.harmful)

    @property
    def caught(self) -> bool:
        """Whether something was rolled back."""
        return bool(self.blamed)

    @property
    def right_blame(self) -> bool:
        """Whether every harmful rewrite was named, and nothing that was not there."""
        nodes = {node for _, node, _ in self.blamed}
        own = all(name == self.name for name, _, _ in self.blamed)
        return own and nodes >= set(self.harmful) and nodes <= set(self.fired)

    @property
    def missed(self) -> bool:
        """Whether a fault got through, or the wrong rewrite was blamed for it."""
        return self.differs or bool(self.error) or (self.bad and not self.caught)


def registry_with(passes: Iterable[Pass]) -> PassRegistry:
    """Return all passes that are installed, and these."""
    extra = [PassEntry(p.name, "tests", lambda p=p: p) for p in passes]
    return PassRegistry([*discover_passes(), *extra])


@dataclass
class Subject:
    """One generated graph, ready for trials.

    Attributes:
        canonical: The model after the first stage of the preset.
        wanted: What the generated model gives.
    """

    made: Generated
    registry: PassRegistry
    canonical: ir.Model = field(init=False)
    feeds: list[Feed] = field(init=False)
    wanted: Results = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = list(random_feeds(self.made.model, _FEEDS, self.made.seed))
        self.wanted = self._run(self.made.model)
        self.rounding = self._rounding()
        self.plan = load_plan("fp32")
        signature = signature_of(self.made.model)
        self.ctx = RunnerContext(signature=signature, profile=profile_for(signature, None, None))
        self.runner = Runner(registry=self.registry, keep_going=True)
        self.canonical = clone(self.made.model)
        self.runner.run_stage(self.canonical, self.plan.stage("canonicalize"), self.ctx)

    def alarms(self) -> list[str]:
        """Run the preset and say what was rolled back, and whether the outputs changed."""
        model, found = clone(self.made.model), []
        for stage in self.plan.stages:
            outcomes = self.runner.run_stage(model, stage, self.ctx)
            found += [f"{self.made.label}: {b}" for b in _blamed(outcomes)]
        if self.differs(model):
            found.append(f"{self.made.label}: the preset changed the outputs")
        return found

    def trial(self, wrong: Pass, *, mixed: bool = False) -> Trial:
        """Run one wrong pass, alone or as the first of the passes of the preset.

        Returns:
            A trial whose `fired` is empty when the pass finds nothing to spoil.
        """
        every = clone(self.canonical)
        fired = _fire(wrong, every)
        if not fired:
            return Trial(self.made.label, wrong.name, ())
        changed = self.differs(every)
        harmful = tuple(n for n in fired if self._harms(wrong, n, len(fired), changed))
        stage = Stage(name="wrong", passes=(wrong.name,))
        if mixed:
            simplify = self.plan.stage("simplify")
            repeats = simplify.repeat_until_stable
            names = (wrong.name, *simplify.passes)
            stage = Stage(name="wrong", passes=names, repeat_until_stable=repeats)
        model = clone(self.canonical)
        try:
            outcomes = self.runner.run_stage(model, stage, self.ctx)
        except VerificationError as error:
            return Trial(self.made.label, wrong.name, fired, harmful, changed, error=str(error))
        blamed, differs = _blamed(outcomes), self.differs(model)
        return Trial(self.made.label, wrong.name, fired, harmful, changed, blamed, differs)

    def differs(self, model: ir.Model) -> bool:
        """Tell whether `model` gives other outputs than the generated one, beyond rounding."""
        try:
            got = self._run(model)
        except BackendError:
            return True
        limit = _LIMIT[self.made.dtype]
        pairs = zip(self.wanted, got, strict=True)
        return any(
            _error(w[n], g[n]) > max(limit, _OF_ROUNDING * self.rounding[n])
            for w, g in pairs
            for n in w
        )

    def _harms(self, wrong: Pass, node: str, count: int, changed: bool) -> bool:
        if count == 1:
            return changed
        model = clone(self.canonical)
        return bool(_fire(wrong, model, only=node)) and self.differs(model)

    def _run(self, model: ir.Model, level: OptimizationLevel = OptimizationLevel.OFF) -> Results:
        session = Session(to_bytes(model), level=level)
        return [session.run(f) for f in self.feeds]

    def _rounding(self) -> dict[str, float]:
        """Measure how far the runtime's own optimizations move each output."""
        other = self._run(self.made.model, OptimizationLevel.ALL)
        pairs = list(zip(self.wanted, other, strict=True))
        return {n: max(_error(w[n], o[n]) for w, o in pairs) for n in self.wanted[0]}


class _OnlyAt(BareContext):
    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        return rewrite.node == self.node and super().apply(rewrite, action)


def _fire(wrong: Pass, model: ir.Model, only: str | None = None) -> tuple[str, ...]:
    """Run the pass unchecked and return the nodes that it changed."""
    ctx = BareContext() if only is None else _OnlyAt(only)
    return tuple(r.node for r in wrong.run(model, ctx).rewrites)


def _blamed(outcomes: Sequence[PassOutcome]) -> tuple[tuple[str, str, bool], ...]:
    rejects = [(o.name, r) for o in outcomes for r in o.rejects]
    found = [(n, r.node, r.reason) for n, r in rejects if r.reason.startswith(_ROLLED_BACK)]
    return tuple((name, node, _by_region(reason)) for name, node, reason in found)


def _by_region(reason: str) -> bool:
    """Tell a finding of the region check from one of the whole model or of the lint."""
    text = reason.removeprefix(_ROLLED_BACK)
    return not text.startswith(("output '", "the model cannot", "node '", "value '"))


def _error(wanted: np.ndarray, got: np.ndarray) -> float:
    """Return the largest error over the largest magnitude."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return np.inf
    want, have = wanted.astype(np.float64), got.astype(np.float64)
    if not np.isfinite(have).all():
        return np.inf
    scale = float(np.abs(want).max(initial=0.0)) or 1.0
    return float(np.abs(want - have).max(initial=0.0)) / scale
