"""One attempt at a stage: run its passes, check each, keep the records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from optcc.graph.lint import lint
from optcc.passkit.contract import Exactness, Pass, PassResult, Rejection, Rewrite
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.ledger import Entry, Ledger
from optcc.pipeline.outcome import WHOLE_MODEL, Applied, CheckTally, PassOutcome
from optcc.pipeline.replay import Replay, weaker
from optcc.pipeline.turn import run_pass
from optcc.verify.fingerprint import Fingerprints
from optcc.verify.numeric import Outcome, Verdict
from optcc.verify.observe import Observations
from optcc.verify.region import RegionChecker
from optcc.verify.whole import check_whole

__all__ = ["StageRun"]


@dataclass(slots=True)
class StageRun:
    """One attempt.

    Attributes:
        model: Changed in place.
        replay: The same stage from its start, to find who is to blame.
        seen: Observations of the model at the start of the stage.
        checker: Checks each rewrite; None leaves that to the end of the stage.
        prints: Makes digests of whole graphs.
        digest: Of the graph as it is; empty when rewrites are not checked one by one.
        judged: The last graph that was checked as a whole, and how that came out.
        outcomes: One record per pass, in order of first run.
    """

    model: ir.Model
    replay: Replay
    seen: Observations
    checker: RegionChecker | None
    prints: Fingerprints
    outcomes: dict[str, PassOutcome] = field(default_factory=dict)
    weakest: Exactness = Exactness.BITWISE
    lint_known: Sequence[str] = ()
    digest: bytes = b""
    judged: tuple[tuple[bytes, Exactness], Verdict] | None = None
    rejected: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def ctx(self) -> RunnerContext:
        """What the passes may ask for."""
        return self.replay.ctx

    def run(self) -> bool:
        """Run all rounds and check the whole model.

        Returns:
            Whether the last allowed round changed nothing more.

        Raises:
            BrokenPromiseError: A check failed.
        """
        self.lint_known = lint(self.model, self.ctx.signature)
        stable = self._run_rounds()
        self._check_whole()
        return stable

    def _run_rounds(self) -> bool:
        stage = self.replay.stage
        for turn in range(stage.repeat_until_stable):
            changed = [self._run_pass(name, turn) for name in stage.passes]
            if not any(changed):
                return True
        return stage.repeat_until_stable == 1

    def _run_pass(self, name: str, turn: int) -> bool:
        one = self.replay.registry.get(name)
        skipped = self.replay.left_out.get(name, {})
        outcome = self.outcomes.setdefault(name, _outcome(one, self.replay.stage.name))
        if "" in skipped:
            return False
        began = time.perf_counter()
        ledger = Ledger(name, one.exactness, self.checker, frozenset(skipped))
        result = run_pass(one, self.model, self.ctx, ledger, turn)
        self._lint(name)
        if result.modified:
            self.weakest = weaker(self.weakest, one.exactness)
            self._record(outcome, ledger, result)
        outcome.rejects = list(dict.fromkeys(result.rejects))
        outcome.seconds += time.perf_counter() - began
        self._trace(name, turn, result, ledger)
        return result.modified

    def _lint(self, name: str) -> None:
        found = lint(self.model, self.ctx.signature)
        fresh = [p for p in found if p not in self.lint_known]
        if fresh:
            raise self.replay.blame(self._lint_fault, f"{fresh[0]} after {name!r}")
        self.lint_known = found

    def _lint_fault(self, before: ir.Model, after: ir.Model, weakest: Exactness) -> str | None:
        known = lint(before, self.ctx.signature)
        fresh = [p for p in lint(after, self.ctx.signature) if p not in known]
        return fresh[0] if fresh else None

    def _record(self, outcome: PassOutcome, ledger: Ledger, result: PassResult) -> None:
        """Enter every rewrite with its check; what has no region shares one check."""
        pending = [(e.node, e.what, e.verdict) for e in ledger.entries]
        through = {(e.node, e.what) for e in ledger.entries}
        pending += [
            (r.node, r.what, None) for r in result.rewrites if (r.node, r.what) not in through
        ]
        bare = any(verdict is None for _, _, verdict in pending)
        shared = self._check_bare(outcome.exactness, bare)
        for node, what, own in pending:
            verdict = own if own is not None else shared
            outcome.rewrites.append(_applied(node, what, verdict))
            if verdict is not None:
                outcome.check.add(verdict)

    def _check_bare(self, exactness: Exactness, bare: bool) -> Verdict | None:
        """Check rewrites without a region: by the digest of the graph, else by its numbers."""
        if self.checker is None:
            return None
        earlier, self.digest = self.digest, self.prints.of_graph(self.model.graph)
        if not bare:
            return None
        return Verdict(Outcome.OK, 0.0, 0.0) if earlier == self.digest else self._judge()

    def _judge(self) -> Verdict:
        """Check the whole model, unless this very graph was checked already."""
        key = (self.digest, self.weakest)
        if self.digest and self.judged is not None and self.judged[0] == key:
            return self.judged[1]
        ctx = self.ctx
        verdict = check_whole(self.replay.before, self.seen, self.model, self.weakest, ctx.seed)
        if verdict.outcome is Outcome.BROKEN:
            raise self.replay.blame(self._number_fault, verdict.reason)
        self.judged = (key, verdict)
        return verdict

    def _number_fault(self, before: ir.Model, after: ir.Model, weakest: Exactness) -> str | None:
        verdict = check_whole(self.replay.before, self.seen, after, weakest, self.ctx.seed)
        return verdict.reason if verdict.outcome is Outcome.BROKEN else None

    def _check_whole(self) -> None:
        if not any(o.rewrites for o in self.outcomes.values()):
            return
        began = time.perf_counter()
        verdict = self._judge()
        tally = CheckTally(self.weakest.value)
        tally.add(verdict)
        stage = self.replay.stage.name
        outcome = PassOutcome(WHOLE_MODEL, stage, self.weakest, tally)
        outcome.seconds = time.perf_counter() - began
        if verdict.reason:
            outcome.rejects.append(Rejection("", verdict.reason))
        self.outcomes[WHOLE_MODEL] = outcome
        self.ctx.emit("whole-model", stage=stage, check=verdict.outcome.value)

    def _trace(self, name: str, turn: int, result: PassResult, ledger: Ledger) -> None:
        stage = self.replay.stage.name
        self.ctx.emit("pass", stage=stage, name=name, round=turn + 1, rewrites=len(result.rewrites))
        entries = {(e.node, e.what): e for e in ledger.entries}
        for rewrite in result.rewrites:
            entry = entries.get((rewrite.node, rewrite.what))
            self.ctx.emit("rewrite", **_facts(name, rewrite, entry))
        for reject in result.rejects:
            key = (name, reject.node, reject.reason)
            if key not in self.rejected:
                self.rejected.add(key)
                self.ctx.emit("reject", name=name, node=reject.node, reason=reject.reason)


def _outcome(one: Pass, stage: str) -> PassOutcome:
    return PassOutcome(one.name, stage, one.exactness, CheckTally(one.exactness.value))


def _facts(name: str, rewrite: Rewrite, entry: Entry | None) -> dict[str, object]:
    facts: dict[str, object] = {"name": name, "node": rewrite.node, "what": rewrite.what}
    if entry is not None and set(entry.merged) != set(entry.into):
        facts |= {"merged": entry.merged, "into": entry.into}
    return facts


def _applied(node: str, what: str, verdict: Verdict | None) -> Applied:
    if verdict is None:
        return Applied(node, what, "not checked")
    return Applied(node, what, verdict.outcome.value, verdict.reason)
