"""How good is the checker? Run a wrong pass on a graph under the real runner, and know the truth.

The truth does not come from the checker: every rewrite is also applied alone and unchecked, and the
outputs of the whole model are compared on many random inputs of several batch sizes and magnitudes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import profile_for
from optcc.errors import BackendError, VerificationError
from optcc.graph.io import clone, to_bytes
from optcc.graph.signature import signature_of
from optcc.graph.walk import graphs_of
from optcc.passkit.contract import Feed, Pass, PassContext, PassResult, Rewrite
from optcc.passkit.testing import BareContext
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.outcome import PassOutcome
from optcc.pipeline.plan import Stage, load_plan
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from optcc.pipeline.runner import Runner
from optcc.runtime.session import OptimizationLevel, Session
from tests.models.generated import Generated, random_feeds

__all__ = ["Subject", "Trial"]

_FEEDS = 24
_MOST_NODES = 3
_LIMIT = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-2}
_OF_ROUNDING = {"float64": 16.0, "float32": 16.0, "float16": 4.0}
_ROLLED_BACK = "rolled back: "

Results = list[Feed]


@dataclass(frozen=True)
class Trial:
    """One wrong pass on one graph.

    Attributes:
        fired: Nodes at which it changes something when nobody checks; three at most are tried.
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


@cache
def _installed() -> PassRegistry:
    return discover_passes()


def _registry(*passes: Pass) -> PassRegistry:
    """Return all passes that are installed, and these."""
    extra = [PassEntry(p.name, "tests", lambda p=p: p) for p in passes]
    return PassRegistry([*_installed(), *extra])


@dataclass
class Subject:
    """One generated graph, ready for trials.

    Attributes:
        seed: Of the checker's probes.
        canonical: The model after the first stage of the preset.
        wanted: What the generated model gives.
    """

    made: Generated
    seed: int = 0
    canonical: ir.Model = field(init=False)
    feeds: list[Feed] = field(init=False)
    wanted: Results = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = list(random_feeds(self.made.model, _FEEDS, self.made.seed))
        self.wanted = self._run(self.made.model)
        self.rounding = self._rounding()
        self.plan = load_plan("fp32")
        signature = signature_of(self.made.model)
        profile = profile_for(signature, None, None)
        self.ctx = RunnerContext(signature=signature, profile=profile, seed=self.seed)
        self.runner = Runner(registry=_registry(), keep_going=True)
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
        picky = _Picky(wrong)
        fired = self._choose(wrong.name, _fire(picky, clone(self.canonical)))
        if not fired:
            return Trial(self.made.label, wrong.name, ())
        changed = self._harms(picky, fired)
        alone = {n: changed if len(fired) == 1 else self._harms(picky, (n,)) for n in fired}
        harmful = tuple(n for n in fired if alone[n])
        truth = Trial(self.made.label, wrong.name, fired, harmful, changed)
        picky.nodes, model = fired, clone(self.canonical)
        runner = Runner(registry=_registry(picky), keep_going=True)
        runner._latest = self.runner._latest
        try:
            outcomes = runner.run_stage(model, self._stage(wrong, mixed), self.ctx)
        except VerificationError as error:
            return replace(truth, error=str(error))
        return replace(truth, blamed=_blamed(outcomes), differs=self.differs(model))

    def _choose(self, name: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """Draw at most `_MOST_NODES` of `nodes`, in their order."""
        rng = np.random.default_rng([self.made.seed, zlib.crc32(name.encode())])
        count = min(_MOST_NODES, len(nodes))
        places = sorted(rng.choice(len(nodes), count, replace=False)) if count else []
        return tuple(nodes[k] for k in places)

    def _stage(self, wrong: Pass, mixed: bool) -> Stage:
        if not mixed:
            return Stage(name="wrong", passes=(wrong.name,))
        return replace(
            self.plan.stage("simplify"),
            passes=(wrong.name, *self.plan.stage("simplify").passes),
        )

    def differs(self, model: ir.Model) -> bool:
        """Tell whether `model` gives other outputs than the generated one, beyond rounding."""
        try:
            got = self._run(model)
        except BackendError:
            return True
        limit = _LIMIT[self.made.dtype]
        pairs = zip(self.wanted, got, strict=True)
        return any(
            _error(w[n], g[n]) > max(limit, _OF_ROUNDING[self.made.dtype] * self.rounding[n])
            for w, g in pairs
            for n in w
        )

    def _harms(self, picky: _Picky, nodes: tuple[str, ...]) -> bool:
        """Tell whether the rewrites of `nodes`, unchecked, change the outputs."""
        picky.nodes, model = nodes, clone(self.canonical)
        return bool(_fire(picky, model)) and self.differs(model)

    def _run(
        self,
        model: ir.Model,
        *,
        level: OptimizationLevel = OptimizationLevel.OFF,
        seed: int | None = None,
    ) -> Results:
        """Run on all feeds; with a `seed`, on their neighbours."""
        session = Session(to_bytes(model), level=level)
        if seed is None:
            return [session.run(f) for f in self.feeds]
        rng = np.random.default_rng([seed, 4])
        return [session.run({n: _nudge(a, rng) for n, a in f.items()}) for f in self.feeds]

    def _rounding(self) -> dict[str, float]:
        """Measure what rounding does to each output.

        Once the runtime's own optimizations regroup sums, and once every weight and input goes to
        the next number of its type, up or down. Single numbers stay: 2 may be an exponent.
        """
        optimized = self._run(self.made.model, level=OptimizationLevel.ALL)
        nudged = self._run(_nudged(self.made.model, self.made.seed), seed=self.made.seed)
        triples = list(zip(self.wanted, optimized, nudged, strict=True))
        return {
            n: max(max(_error(w[n], o[n]), _error(w[n], g[n])) for w, o, g in triples)
            for n in self.wanted[0]
        }


class _Picky:
    """A pass that works at some nodes only.

    Attributes:
        nodes: None is all of them.
    """

    def __init__(self, inner: Pass) -> None:
        self.inner, self.name, self.exactness = inner, inner.name, inner.exactness
        self.needs, self.gives, self.breaks = inner.needs, inner.gives, inner.breaks
        self.nodes: tuple[str, ...] | None = None

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Run the pass with a context that lets the rewrites of other nodes be."""
        return self.inner.run(model, _OnlyAt(ctx, self.nodes))


class _OnlyAt:
    """A context that lets some rewrites happen and hands on everything else."""

    def __init__(self, ctx: PassContext, nodes: tuple[str, ...] | None) -> None:
        self._ctx, self._nodes = ctx, nodes

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        chosen = self._nodes is None or rewrite.node in self._nodes
        return chosen and self._ctx.apply(rewrite, action)

    def __getattr__(self, name: str) -> object:
        return getattr(self._ctx, name)


def _nudged(model: ir.Model, seed: int) -> ir.Model:
    rng = np.random.default_rng([seed, 3])
    copy = clone(model)
    for graph in graphs_of(copy):
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.size > 1:
                array = _nudge(value.const_value.numpy(), rng)
                value.const_value = ir.tensor(array, name=value.name)
    return copy


def _nudge(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    towards = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, towards))


def _fire(wrong: Pass, model: ir.Model) -> tuple[str, ...]:
    """Run the pass unchecked and return the nodes that it changed."""
    return tuple(dict.fromkeys(r.node for r in wrong.run(model, BareContext()).rewrites))


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
