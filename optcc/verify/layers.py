"""Compare the inner values of two models that carry the same names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.passkit.contract import Feed
from optcc.verify.allowance import Allowance, narrowest_float
from optcc.verify.noise import change, disturb, disturbed_model, rounding_unit
from optcc.verify.numeric import Outcome, Verdict, is_float, sqnr_db, worst
from optcc.verify.observe import value_chunks
from optcc.verify.reference import open_model

__all__ = ["LayerError", "compare_layers"]

Runs = list[Feed]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """One value of both models.

    Attributes:
        node: That makes it in the first model.
        sqnr_db: The least over the feeds; None when nothing differs.
    """

    value: str
    node: str
    op_type: str
    verdict: Verdict
    sqnr_db: float | None

    @property
    def parts(self) -> bool:
        """Whether it differs by more than is allowed."""
        return self.verdict.outcome is Outcome.BROKEN


def compare_layers(
    first: ir.Model, second: ir.Model, feeds: Sequence[Feed], allowance: Allowance, seed: int = 0
) -> list[LayerError]:
    """Compare every value of the main graph that both models make, in the order of `first`.

    Values that the runtime cannot return are left out.

    Args:
        first: The reference.
        second: Takes the same inputs.
        feeds: Run one after the other; keep them few.
        allowance: What still counts as equal.
        seed: Chooses the signs of the disturbance that rounding is measured with.
    """
    common = {v.name for n in second.graph for v in n.outputs if v.name}
    makers = {v.name: n for n in first.graph for v in n.outputs if v.name in common}
    judge = _Judge(first, allowance, feeds, seed)
    verdicts: dict[str, tuple[Verdict, float | None]] = {}
    for chunk in value_chunks(first, set()):
        shared = [n for n in chunk if n in common]
        for names, wanted, got in _runs(first, second, feeds, shared):
            verdicts |= judge.of(names, wanted, got)
    return [
        LayerError(
            value=name,
            node=node.name or "",
            op_type=node.op_type,
            verdict=verdicts[name][0],
            sqnr_db=verdicts[name][1],
        )
        for name, node in makers.items()
        if name is not None and name in verdicts
    ]


def _runs(
    first: ir.Model, second: ir.Model, feeds: Sequence[Feed], names: Sequence[str]
) -> Iterator[tuple[Sequence[str], Runs, Runs]]:
    """Run both with `names` as outputs; halve them while a runtime refuses."""
    if not names:
        return
    try:
        wanted, got = _run(first, feeds, names), _run(second, feeds, names)
    except BackendError:
        if len(names) > 1:  # one value that cannot be returned must not hide the others
            half = len(names) // 2
            yield from _runs(first, second, feeds, names[:half])
            yield from _runs(first, second, feeds, names[half:])
        return
    yield names, wanted, got


def _run(model: ir.Model, feeds: Sequence[Feed], names: Sequence[str]) -> Runs:
    with open_model(model, also=names) as session:
        return [session.run(feed, names) for feed in feeds]


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges arrays, and measures what rounding may do where they differ."""

    model: ir.Model
    allowance: Allowance
    feeds: Sequence[Feed]
    seed: int

    def of(
        self, names: Sequence[str], wanted: Runs, got: Runs
    ) -> dict[str, tuple[Verdict, float | None]]:
        kept = [n for n in names if isinstance(wanted[0][n], np.ndarray)]
        found = {n: self._verdict(n, wanted, got, 0.0) for n in kept}
        doubtful = [n for n in kept if found[n].outcome is Outcome.BROKEN]
        if doubtful and self.allowance.tolerance is None:
            noise = self._noise(doubtful, wanted)
            found |= {n: self._verdict(n, wanted, got, noise[n]) for n in doubtful}
        return {n: (found[n], _least_sqnr(n, wanted, got)) for n in kept}

    def _verdict(self, name: str, wanted: Runs, got: Runs, noise: float) -> Verdict:
        narrow, pairs = narrowest_float(self.model), zip(wanted, got, strict=True)
        return worst([self.allowance.judge(w[name], g[name], narrow, noise) for w, g in pairs])

    def _noise(self, names: Sequence[str], wanted: Runs) -> dict[str, float]:
        narrow, rng = narrowest_float(self.model), np.random.default_rng([self.seed, 3])
        if narrow is None:
            return dict.fromkeys(names, 0.0)
        feeds = [{k: disturb(a, rng) for k, a in f.items()} for f in self.feeds]
        try:
            moved = _run(disturbed_model(self.model, rng), feeds, names)
        except BackendError:
            return dict.fromkeys(names, 0.0)
        unit = rounding_unit(narrow)
        return {
            n: unit * max(change(w[n], m[n]) for w, m in zip(wanted, moved, strict=True))
            for n in names
        }


def _least_sqnr(name: str, wanted: Runs, got: Runs) -> float | None:
    pairs = [(w[name], g[name]) for w, g in zip(wanted, got, strict=True)]
    if any(w.shape != g.shape or w.dtype.hasobject for w, g in pairs):
        return None
    levels = [sqnr_db(*_both_finite(w, g)) for w, g in pairs]
    return min((s for s in levels if s is not None), default=None)


def _both_finite(wanted: np.ndarray, got: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not (is_float(wanted.dtype) and is_float(got.dtype)):
        return wanted, got
    kept = np.isfinite(wanted.astype(np.float64)) & np.isfinite(got.astype(np.float64))
    return wanted[kept], got[kept]
