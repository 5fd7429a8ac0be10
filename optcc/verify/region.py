"""Check one rewrite: the region before and after it, on the same seeded probes.

A rewrite must hold for whatever flows into the region that it names, so the probes need not be
what the model really sees; they follow it, so that they have its shapes and reach its branches.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.edit import is_constant
from optcc.passkit.contract import Exactness, Feed, Rewrite
from optcc.verify.boundary import Boundary
from optcc.verify.cut import Cut, RegionTooLargeError, cut_region
from optcc.verify.draw import draw_like, draw_wide
from optcc.verify.execute import CutFeed, CutRunner
from optcc.verify.fingerprint import Fingerprints
from optcc.verify.noise import Noise, rounding_noise
from optcc.verify.numeric import Outcome, Verdict, compare, uninformative, worst
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
            cut = cut_region(rewrite.outputs, edge, self.model, fixed=self.boundary.is_fixed)
        except RegionTooLargeError as error:
            return Reference(rewrite, edge, problem=f"the region is too large: {error}")
        runner = CutRunner(cut)
        mark = self.prints.of(rewrite.outputs, edge)
        if cut.random:
            return Reference(rewrite, edge, runner, print_=mark, problem="it draws random numbers")
        feeds = self._feeds(rewrite, tuple(cut.inputs.values()), wide=False)
        if isinstance(feeds, str):
            return Reference(rewrite, edge, problem=feeds)
        try:
            runs = tuple(runner.run(f) for f in feeds)
        except BackendError as error:
            problem = f"the region cannot be run before the change: {error.what}"
            return Reference(rewrite, edge, runner, feeds, print_=mark, problem=problem)
        return Reference(rewrite, edge, runner, feeds, runs, mark)

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
        if check.verdict.outcome is Outcome.INCONCLUSIVE:
            check = self._second_look(reference, outputs, exactness, check)
        self._remember(reference, outputs)
        return check

    def _second_look(
        self,
        reference: Reference,
        outputs: Sequence[ir.Value],
        exactness: Exactness,
        first: RegionCheck,
    ) -> RegionCheck:
        """Try to decide by structure, then by probes from a wider distribution."""
        mark = self.prints.of(outputs, reference.boundary)
        if reference.print_ and mark == reference.print_:
            return RegionCheck(Verdict(Outcome.OK, 0.0, 0.0))
        runner = reference.runner
        if runner is None or reference.problem:
            return first
        feeds = self._feeds(reference.rewrite, tuple(runner.cut.inputs.values()), wide=True)
        if isinstance(feeds, str):
            return first
        try:
            runs = tuple(runner.run(f) for f in feeds)
        except BackendError:
            return first
        wide = Reference(reference.rewrite, reference.boundary, runner, feeds, runs)
        second = self._compare(wide, outputs, exactness)
        return first if second.verdict.outcome is Outcome.INCONCLUSIVE else second

    def _compare(
        self, reference: Reference, outputs: Sequence[ir.Value], exactness: Exactness
    ) -> RegionCheck:
        if reference.problem or reference.runner is None:
            return _open(reference.problem)
        try:
            cut = cut_region(outputs, reference.boundary, self.model, fixed=self.boundary.is_fixed)
        except RegionTooLargeError as error:
            return _open(f"the region is too large: {error}")
        feeds = self._completed(reference, cut)
        if isinstance(feeds, str):
            return _open(feeds)
        runner = CutRunner(cut)
        failure = _failure(reference.runner, runner, feeds)
        try:
            runs = tuple(runner.run(f) for f in feeds)
        except BackendError as error:
            text = f"the region cannot be run after the change: {error.what}"
            return RegionCheck(Verdict(Outcome.BROKEN, reason=text), failure)
        verdict = self._judge(reference, runs, exactness)
        return RegionCheck(verdict, failure if verdict.outcome is Outcome.BROKEN else None)

    def _completed(self, reference: Reference, cut: Cut) -> tuple[CutFeed, ...] | str:
        """Add what the changed region reads although the rewrite does not name it."""
        known = reference.feeds[0] if reference.feeds else {}
        extra = tuple(v for v in cut.inputs.values() if v not in known)
        if not extra:
            return reference.feeds
        more = self._feeds(reference.rewrite, extra, wide=False)
        if isinstance(more, str):
            return more
        return tuple({**a, **b} for a, b in zip(reference.feeds, more, strict=False))

    def _feeds(
        self, rewrite: Rewrite, values: Sequence[ir.Value], *, wide: bool
    ) -> tuple[CutFeed, ...] | str:
        if not values:
            return ({},)
        draw = draw_wide if wide else draw_like
        feeds: list[dict[ir.Value, np.ndarray]] = []
        for probe in range(self.boundary.probes):
            rng = np.random.default_rng([self.seed, zlib.crc32(rewrite.node.encode()), probe])
            feed: dict[ir.Value, np.ndarray] = {}
            for value in values:
                seen = self.boundary.seen(value)
                if seen is None:
                    return f"it is not known what {value.name!r} may hold"
                feed[value] = draw(seen[probe], rng, fixed=self.boundary.is_fixed(value))
            feeds.append(feed)
        return tuple(feeds)

    def _judge(
        self,
        reference: Reference,
        runs: tuple[tuple[np.ndarray, ...], ...],
        exactness: Exactness,
    ) -> Verdict:
        assert reference.runner is not None
        cut = reference.runner.cut
        verdicts: list[Verdict] = []
        for k, output in enumerate(cut.outputs):
            wanted = [r[k] for r in reference.runs]
            got = [r[k] for r in runs]
            verdict = worst(
                [compare(w, g, exactness, cut.narrowest) for w, g in zip(wanted, got, strict=True)]
            )
            if verdict.outcome is Outcome.BROKEN and exactness is Exactness.ROUNDING:
                verdict = self._weigh(reference, runs, k)
            silent = uninformative(wanted) if output in cut.varying else None
            if verdict.outcome is Outcome.OK and silent:
                verdict = Verdict(Outcome.INCONCLUSIVE, verdict.max_error, verdict.allowed, silent)
            verdicts.append(verdict)
        return worst(verdicts)

    def _weigh(
        self, reference: Reference, runs: tuple[tuple[np.ndarray, ...], ...], k: int
    ) -> Verdict:
        """Judge an error again, with the rounding that this region is measured to make."""
        assert reference.runner is not None
        cut = reference.runner.cut
        verdicts = []
        for feed, wanted, got in zip(reference.feeds, reference.runs, runs, strict=True):
            rng = np.random.default_rng([self.seed, 1])
            noise = rounding_noise(cut, feed, wanted, rng)[k]
            verdicts.append(_with_noise(cut, wanted[k], got[k], noise))
        return worst(verdicts)

    def _remember(self, reference: Reference, outputs: Sequence[ir.Value]) -> None:
        """Let later rewrites begin at values that this one has made."""
        for k, value in enumerate(outputs):
            if reference.runs and not is_constant(value):
                self.boundary.learn(value, [r[k] for r in reference.runs])


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
