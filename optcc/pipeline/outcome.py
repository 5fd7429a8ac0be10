"""What the runner hands back: one record per pass and stage, plain data without graph objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from optcc.passkit.contract import Exactness, Rejection
from optcc.verify.numeric import Outcome, Verdict

__all__ = ["WHOLE_MODEL", "Applied", "CheckTally", "PassOutcome"]

WHOLE_MODEL = "verify.whole-model"
"""Name of the record that holds the check at the end of a stage."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite that stands.

    Attributes:
        check: "ok", "inconclusive", or "not checked".
        reason: Why the check is not "ok".
    """

    node: str
    what: str
    check: str
    reason: str = ""


@dataclass(slots=True)
class CheckTally:
    """Checks of one pass, summed up; the fields are those of `report.schema.Check`.

    Attributes:
        max_error: Largest error over the largest magnitude of its reference.
        allowed: What was allowed where the largest error occurred.
    """

    kind: str
    conclusive: int = 0
    inconclusive: int = 0
    max_error: float | None = None
    allowed: float | None = None

    @property
    def verdict(self) -> str:
        """One of "pass", "inconclusive", "not checked"; a failure never gets this far."""
        if self.inconclusive:
            return "inconclusive"
        return "pass" if self.conclusive else "not checked"

    def add(self, verdict: Verdict) -> None:
        """Count one check."""
        if verdict.outcome is Outcome.INCONCLUSIVE:
            self.inconclusive += 1
            return
        self.conclusive += 1
        error = verdict.max_error
        if error is not None and (self.max_error is None or error > self.max_error):
            self.max_error, self.allowed = error, verdict.allowed


@dataclass(slots=True)
class PassOutcome:
    """One pass in one stage, all rounds together.

    Attributes:
        seconds: Time in the pass and in its checks.
        rewrites: In the order they happened.
        rejects: Of the last round, and rewrites that were rolled back.
    """

    name: str
    stage: str
    exactness: Exactness
    check: CheckTally
    seconds: float = 0.0
    rewrites: list[Applied] = field(default_factory=list)
    rejects: list[Rejection] = field(default_factory=list)
