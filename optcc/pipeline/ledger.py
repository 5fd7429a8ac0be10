"""Book-keeping of one run of one pass: which rewrites happen, and how each check came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Rewrite
from optcc.pipeline.lineage import node_names
from optcc.verify.numeric import Outcome, Verdict
from optcc.verify.region import RegionChecker, RegionFailure

__all__ = ["BrokenPromiseError", "Entry", "Ledger"]


class BrokenPromiseError(Exception):
    """A check failed: the graph is spoilt and the pass must not go on.

    Attributes:
        node: The rewrite to blame; empty when it is the pass as a whole.
        reason: What differs.
        failure: What a reproducer needs.
        part: What to leave out: a node, or "" for the whole pass.
    """

    def __init__(
        self,
        pass_name: str,
        node: str,
        reason: str,
        failure: RegionFailure | None = None,
        *,
        part: str | None = None,
    ) -> None:
        super().__init__(f"{pass_name} at {node}: {reason}")
        self.pass_name, self.node, self.reason, self.failure = pass_name, node, reason, failure
        self.part = node if part is None else part


@dataclass(frozen=True, slots=True)
class Entry:
    """One rewrite that went through `apply`.

    Attributes:
        verdict: None when no region check covers it: it has no region, or is lossy, which is
            measured on the whole model.
        merged: Names of the nodes that were replaced, as far as they are known.
        into: Names of the nodes that stand in their place.
    """

    node: str
    what: str
    verdict: Verdict | None
    merged: tuple[str, ...] = ()
    into: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """Lets rewrites happen, one run of one pass.

    Attributes:
        pass_name: The running pass.
        exactness: What it promises.
        checker: Checks each region; None leaves checks to the stage.
        left_out: Nodes whose rewrites were rolled back earlier.
        most: Let only that many rewrites happen; None is no limit.
    """

    pass_name: str = ""
    exactness: Exactness = Exactness.BITWISE
    checker: RegionChecker | None = None
    left_out: Collection[str] = ()
    most: int | None = None
    entries: list[Entry] = field(default_factory=list)

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        """Run `action` unless it is to be left out, and check it.

        Raises:
            BrokenPromiseError: The region gives other numbers than before.
        """
        if rewrite.node in self.left_out:
            return False
        if self.most is not None and len(self.entries) >= self.most:
            return False
        merged, into = node_names(rewrite.outputs, rewrite.inputs), tuple[str, ...]()

        def traced() -> Sequence[ir.Value]:
            nonlocal into
            values = action()
            into = node_names(values, rewrite.inputs)
            return values

        verdict = self._checked(rewrite, traced)
        self.entries.append(Entry(rewrite.node, rewrite.what, verdict, merged, into))
        return True

    def _checked(
        self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]
    ) -> Verdict | None:
        lossy = self.exactness is Exactness.LOSSY
        if self.checker is None or lossy or not rewrite.outputs:
            action()
            return None
        reference = self.checker.before(rewrite)
        check = self.checker.after(reference, action(), self.exactness)
        if check.verdict.outcome is Outcome.BROKEN:
            reason = check.verdict.reason
            raise BrokenPromiseError(self.pass_name, rewrite.node, reason, check.failure)
        return check.verdict
