"""Check one rewrite: the region before and after it, on the same seeded probes.

A rewrite must hold for whatever flows into the region that it names, so the probes need not be
what the model really sees; they follow it, so that they have its shapes and reach its branches.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.edit import is_constant
from optcc.passkit.contract import Exactness, Feed, Rewrite
from optcc.verify.boundary import Boundary
from optcc.verify.cut import Cut, RegionTooLargeError, cut_region
from optcc.verify.execute import CutFeed, CutRunner
from optcc.verify.feeds import region_feeds
from optcc.verify.fingerprint import Fingerprints
from optcc.verify.noise import Noise, rounding_noise
from optcc.verify.numeric import Outcome, Verdict, compare, provable, uninformative, worst
from optcc.verify.observe import Observations

__all__ = ["Reference", "RegionCheck", "RegionChecker", "RegionFailure"]


@dataclass(frozen=True, slots=True)
class RegionFailure:
    """What a reproducer needs: the region before and after, and inputs that tell them apart."""

    before: ir.Model | None
    after: ir.Model | None
    feeds: tuple[Feed, ...]


@dataclass(frozen=True, slots=True)
class RegionCheck:
    """Result of the check of one rewrite."""

    verdict: Verdict
    failure: RegionFailure | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A region as it was before a rewrite, with its results.

    Attributes:
        feeds: One per probe.
        runs: Results per probe, aligned with the outputs of the cut.
        print_: Fingerprint of the region.
        problem: Why there is nothing to compare with; empty when there is.
    """

    rewrite: Rewrite
    boundary: tuple[ir.Value, ...] = ()
    runner: CutRunner | None = None
    feeds: tuple[CutFeed, ...] = ()
    runs: tuple[tuple[np.ndarray, ...], ...] = ()
    print_: bytes = b""
    problem: str = ""


@dataclass(slots=True)
class RegionChecker:
    """Checks rewrites of one model, one after the other.

    Attributes:
        model: The live model.
        observations: What its values were seen to hold.
        seed: Probes of one region depend on it and on the name of the rewrite alone.
    """

    model: ir.Model
    observations: Observations
    seed: int = 0
    boundary: Boundary = field(init=False)
    prints: Fingerprints = field(init=False)

    def __post_init__(self) -> None:
        self.boundary = Boundary(self.observations)
        self.prints = Fingerprints()

    def before(self, rewrite: Rewrite) -> Reference:
        """Cut and run the region that `rewrite` bounds, before anything changes."""
        edge = self.boundary.of(rewrite.inputs)
        if isinstance(edge, str):
            return Reference(rewrite, problem=edge)
        try:
            cut = self._cut(rewrite.outputs, edge)
        except RegionTooLargeError as error:
            return Reference(rewrite, edge, problem=f"the region is too large: {error}")
        runner = CutRunner(cut)
        mark = self.prints.of(rewrite.outputs, edge)
        if cut.random:
            return Reference(rewrite, edge, runner, print_=mark, problem="it draws random numbers")
        feeds = self._feeds(rewrite, tuple(cut.inputs.values()), cut.reach)
        if isinstance(feeds, str):
            return Reference(rewrite, edge, runner, print_=mark, problem=feeds)
        return self._run_before(Reference(rewrite, edge, runner, feeds, print_=mark))

    def _cut(self, outputs: Sequence[ir.Value], edge: Sequence[ir.Value]) -> Cut:
        cut = cut_region(outputs, edge, self.model, fixed=self.boundary.is_fixed)
        for formal in cut.model.graph.inputs if cut.model is not None else ():
            live = cut.inputs.get(formal.name or "")
            seen = self.boundary.seen(live) if live is not None and live.type is None else None
            if seen is not None:  # types are unknown before shape inference
                formal.type = ir.TensorType(ir.DataType.from_numpy(seen[0].dtype))
        return cut

    def _run_before(self, reference: Reference, *, bonus: bool = False) -> Reference:
        """Run the region on every feed; drop `bonus` feeds, and spread ones, that it refuses."""
        runs: list[tuple[np.ndarray, ...]] = []
        kept: list[CutFeed] = []
        assert reference.runner is not None
        for number, feed in enumerate(reference.feeds):
            try:
                runs.append(reference.runner.run(feed))
            except BackendError as error:
                if bonus or number >= self.boundary.probes:
                    continue
                problem = f"the region cannot be run before the change: {error.what}"
                return replace(reference, problem=problem)
            kept.append(feed)
        return replace(reference, feeds=tuple(kept), runs=tuple(runs))

    def after(
        self, reference: Reference, outputs: Sequence[ir.Value], exactness: Exactness
    ) -> RegionCheck:
        """Cut and run the region again and compare.

        Args:
            reference: From `before`.
            outputs: Values that now stand for the outputs of the rewrite, in order.
            exactness: What the running pass promises.
        """
        rewrite = reference.rewrite
        if len(outputs) != len(rewrite.outputs):
            text = f"{len(outputs)} values stand for {len(rewrite.outputs)} outputs"
            return RegionCheck(Verdict(Outcome.BROKEN, reason=text))
        check = self._compare(reference, outputs, exactness)
        if check.verdict.outcome is Outcome.INCONCLUSIVE and self._same(reference, outputs):
            check = RegionCheck(Verdict(Outcome.OK, 0.0, 0.0))
        self._remember(reference, outputs)
        return check

    def _same(self, reference: Reference, outputs: Sequence[ir.Value]) -> bool:
        """Tell whether the region computes the same by its structure alone."""
        mark = reference.print_
        return bool(mark) and self.prints.of(outputs, reference.boundary) == mark

    def _compare(
        self, reference: Reference, outputs: Sequence[ir.Value], exactness: Exactness
    ) -> RegionCheck:
        before = reference.runner
        if reference.problem or before is None:
            return _open(reference.problem)
        try:
            cut = self._cut(outputs, reference.boundary)
        except RegionTooLargeError as error:
            return _open(f"the region is too large: {error}")
        reference = self._reaching(reference, cut)
        feeds = self._completed(reference, cut)
        if isinstance(feeds, str):
            return _open(feeds)
        runner = CutRunner(cut)
        failure = _failure(before, runner, feeds)
        try:
            runs = tuple(runner.run(f) for f in feeds)
        except BackendError as error:
            text = f"the region cannot be run after the change: {error.what}"
            return RegionCheck(Verdict(Outcome.BROKEN, reason=text), failure)
        verdict = self._judge(reference, runs, exactness)
        return RegionCheck(verdict, failure if verdict.outcome is Outcome.BROKEN else None)

    def _reaching(self, reference: Reference, cut: Cut) -> Reference:
        """Add spread feeds that reach the bounds of the changed region, where those lie farther."""
        assert reference.runner is not None
        old = reference.runner.cut
        if cut.reach <= old.reach or not reference.feeds or not old.inputs:
            return reference
        feeds = self._feeds(reference.rewrite, tuple(old.inputs.values()), cut.reach)
        if isinstance(feeds, str):
            return reference
        probes = self.boundary.probes
        more = self._run_before(replace(reference, feeds=feeds[probes:]), bonus=True)
        return replace(
            reference, feeds=reference.feeds + more.feeds, runs=reference.runs + more.runs
        )

    def _completed(self, reference: Reference, cut: Cut) -> tuple[CutFeed, ...] | str:
        """Add what the changed region reads although the rewrite does not name it."""
        known = reference.feeds[0] if reference.feeds else {}
        extra = tuple(v for v in cut.inputs.values() if v not in known)
        if not extra:
            return reference.feeds
        more = self._feeds(reference.rewrite, extra, cut.reach)
        if isinstance(more, str):
            return more
        last = len(more) - 1  # further feeds are spread ones, of the same sizes
        return tuple({**a, **more[min(k, last)]} for k, a in enumerate(reference.feeds))

    def _feeds(
        self, rewrite: Rewrite, values: Sequence[ir.Value], reach: float
    ) -> tuple[CutFeed, ...] | str:
        marks = (self.seed, zlib.crc32(rewrite.node.encode()))
        return region_feeds(self.boundary, values, marks, reach)

    def _judge(
        self,
        reference: Reference,
        runs: tuple[tuple[np.ndarray, ...], ...],
        exactness: Exactness,
    ) -> Verdict:
        assert reference.runner is not None
        cut = reference.runner.cut
        exactness = provable(exactness, cut.narrowest)
        verdicts: list[Verdict] = []
        for k, output in enumerate(cut.outputs):
            wanted = [r[k] for r in reference.runs]
            single = [
                compare(w, r[k], exactness, cut.narrowest)
                for w, r in zip(wanted, runs, strict=True)
            ]
            verdict = self._joined(single)
            if verdict.outcome is Outcome.BROKEN and exactness is Exactness.ROUNDING:
                verdict = self._weigh(reference, runs, k)
            silent = uninformative(wanted) if output in cut.varying else None
            if verdict.outcome is Outcome.OK and silent:
                verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=silent)
            verdicts.append(verdict)
        return worst(verdicts)

    def _joined(self, single: Sequence[Verdict]) -> Verdict:
        """Join the verdicts of all probes; the spread ones may break a rewrite, not hide one."""
        bonus = single[self.boundary.probes :]
        telling = [v for v in bonus if v.outcome is not Outcome.INCONCLUSIVE]
        return worst([*single[: self.boundary.probes], *telling])

    def _weigh(
        self, reference: Reference, runs: tuple[tuple[np.ndarray, ...], ...], k: int
    ) -> Verdict:
        """Judge an error again, with the rounding that this region is measured to make."""
        assert reference.runner is not None
        cut = reference.runner.cut
        rng = np.random.default_rng([self.seed, 1])
        noises = rounding_noise(cut, reference.feeds, reference.runs, rng)
        rows = zip(reference.runs, runs, noises, strict=True)
        return self._joined([_with_noise(cut, w[k], g[k], n[k]) for w, g, n in rows])

    def _remember(self, reference: Reference, outputs: Sequence[ir.Value]) -> None:
        """Let later rewrites begin at values that this one has made."""
        for k, value in enumerate(outputs):
            if reference.runs and not is_constant(value):
                self.boundary.learn(value, [r[k] for r in reference.runs[: self.boundary.probes]])


def _with_noise(cut: Cut, wanted: np.ndarray, got: np.ndarray, noise: Noise) -> Verdict:
    verdict = compare(wanted, got, Exactness.ROUNDING, cut.narrowest, noise=noise.rounding)
    if verdict.outcome is not Outcome.BROKEN or not cut.stepped or wanted.shape != got.shape:
        return verdict
    if wanted.dtype.hasobject or noise.moved == 0.0:
        return verdict
    with np.errstate(invalid="ignore"):
        error = np.abs(np.asarray(wanted, np.float64) - np.asarray(got, np.float64)).max()
    if error <= 2 * noise.moved:
        reason = "the result steps at a rounding error"
        return Verdict(Outcome.INCONCLUSIVE, verdict.max_error, verdict.allowed, reason)
    return verdict


def _open(reason: str) -> RegionCheck:
    return RegionCheck(Verdict(Outcome.INCONCLUSIVE, reason=reason))


def _failure(before: CutRunner, after: CutRunner, feeds: Sequence[CutFeed]) -> RegionFailure:
    named = tuple(before.named(f) for f in feeds)
    return RegionFailure(before.cut.model, after.cut.model, named)
