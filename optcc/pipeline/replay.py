"""Find the one rewrite that is to blame when a fault shows only in the whole model.

Passes are deterministic, so the stage is run again from its snapshot, without region checks: first
to the pass after which the fault shows, then with ever fewer rewrites of that pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optcc.passkit.contract import Exactness, PassResult
from optcc.pipeline import snapshot
from optcc.pipeline.context import ContextState, RunnerContext
from optcc.pipeline.ledger import BrokenPromiseError, Ledger
from optcc.pipeline.plan import Stage
from optcc.pipeline.registry import PassRegistry
from optcc.pipeline.turn import run_pass
from optcc.verify.region import RegionFailure

__all__ = ["Fault", "LeftOut", "Replay"]

LeftOut = Mapping[str, Mapping[str, str]]
"""By pass: nodes whose rewrites are left out, and why. The node "" is the whole pass."""

Fault = Callable[[ir.Model, ir.Model, Exactness], str | None]
"""Says what is wrong after a pass: takes the model before and after it and the weakest promise."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A stage that can be run again."""

    registry: PassRegistry
    stage: Stage
    before: ir.Model
    ctx: RunnerContext
    state: ContextState
    left_out: LeftOut

    def blame(self, fault: Fault, otherwise: str) -> BrokenPromiseError:
        """Find the rewrite after which `fault` shows.

        Args:
            fault: The test.
            otherwise: Reason to give when it does not show again.
        """
        found = self.search(snapshot.take(self.before), fault)
        return found or BrokenPromiseError(self.stage.passes[-1], "", otherwise)

    def search(self, model: ir.Model, fault: Fault) -> BrokenPromiseError | None:
        """Run the stage until `fault` shows.

        Args:
            model: A copy of `before`; changed in place, to what the whole stage makes of it when
                there is no fault.
            fault: The test.

        Returns:
            The rewrite after which it shows, or None.
        """
        self.ctx.restore(self.state)
        weakest = Exactness.BITWISE
        for turn in range(self.stage.repeat_until_stable):
            changed = False
            for name in self.stage.passes:
                earlier, state = snapshot.take(model), self.ctx.save()
                result, done = self._run(name, model, turn, None)
                changed |= result.modified
                if not result.modified:
                    continue
                weakest = weaker(weakest, self.registry.get(name).exactness)
                reason = fault(earlier, model, weakest)
                if reason is not None:
                    step = _Step(name, turn, earlier, state, weakest, result, done)
                    return self._within(step, fault, reason)
            if not changed:
                break
        return None

    def _run(
        self, name: str, model: ir.Model, turn: int, most: int | None
    ) -> tuple[PassResult, int]:
        skipped = self.left_out.get(name, {})
        if "" in skipped:
            return PassResult(), 0
        one = self.registry.get(name)
        ledger = Ledger(name, one.exactness, None, frozenset(skipped), most)
        result = run_pass(one, model, self.ctx, ledger, turn)
        return result, len(ledger.entries)

    def _within(self, step: _Step, fault: Fault, reason: str) -> BrokenPromiseError:
        """Halve the number of rewrites of one pass until one rewrite makes the difference."""
        good, bad = 0, step.done
        after = self._partly(step, bad)[0]
        if step.done == 0 or fault(step.before, self._partly(step, 0)[0], step.weakest):
            node = step.result.rewrites[0].node if len(step.result.rewrites) == 1 else ""
            shown = self._shown(step.before, after)
            return BrokenPromiseError(step.name, node, reason, shown, part="")
        while bad - good > 1:
            middle = (good + bad) // 2
            found = fault(step.before, self._partly(step, middle)[0], step.weakest)
            good, bad = (good, middle) if found else (middle, bad)
            reason = found or reason
        sound = self._partly(step, good)[0]
        after, node = self._partly(step, bad)
        return BrokenPromiseError(step.name, node, reason, self._shown(sound, after))

    def _partly(self, step: _Step, most: int) -> tuple[ir.Model, str]:
        """Run the pass with at most that many rewrites; return the model and the last node."""
        model = snapshot.take(step.before)
        self.ctx.restore(step.state)
        one = self.registry.get(step.name)
        skipped = frozenset(self.left_out.get(step.name, {}))
        ledger = Ledger(step.name, one.exactness, None, skipped, most)
        run_pass(one, model, self.ctx, ledger, step.turn)
        return model, ledger.entries[-1].node if ledger.entries else ""

    def _shown(self, before: ir.Model, after: ir.Model) -> RegionFailure:
        return RegionFailure(before, after, tuple(self.ctx.probes or ()))


@dataclass(frozen=True, slots=True)
class _Step:
    """The run of a pass after which the fault shows."""

    name: str
    turn: int
    before: ir.Model
    state: ContextState
    weakest: Exactness
    result: PassResult
    done: int


_FROM_STRONG = (Exactness.BITWISE, Exactness.ROUNDING, Exactness.LOSSY)


def weaker(first: Exactness, second: Exactness) -> Exactness:
    """Return the promise that covers both."""
    return max(first, second, key=_FROM_STRONG.index)
