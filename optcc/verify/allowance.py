"""How far two models may differ: by rounding, or by a share that a person names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optcc.graph.walk import all_graphs, all_values
from optcc.passkit.contract import Exactness, Feed
from optcc.verify.cut import narrowest
from optcc.verify.noise import rounding_unit
from optcc.verify.numeric import Outcome, Verdict, compare, is_float, uninformative, worst
from optcc.verify.observe import Observations
from optcc.verify.whole import outputs_moved

__all__ = ["Allowance", "compare_outputs", "narrowest_float"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What still counts as equal.

    Attributes:
        tolerance: Largest error over the largest magnitude of the reference; None for what
            rounding may do, which follows from the types.
    """

    tolerance: float | None = None

    def judge(
        self,
        reference: np.ndarray,
        got: np.ndarray,
        narrow: np.dtype | None = None,
        noise: float = 0.0,
    ) -> Verdict:
        """Compare one array; OK may carry a reason why it proves little.

        Args:
            reference: Of the first model.
            got: Of the second one.
            narrow: Coarsest float type inside the first model.
            noise: Absolute error that rounding is measured to make.
        """
        if reference.shape == got.shape and (count := _differently_finite(reference, got)):
            text = f"{count} of {reference.size} values are finite in one model only"
            return Verdict(Outcome.BROKEN, reason=text)
        if self.tolerance is not None:
            return self._within(reference, got, self.tolerance)
        verdict = compare(reference, got, Exactness.ROUNDING, narrow, noise=noise)
        if verdict.outcome is Outcome.INCONCLUSIVE:
            return replace(verdict, outcome=Outcome.OK)
        return verdict

    def _within(self, reference: np.ndarray, got: np.ndarray, tolerance: float) -> Verdict:
        verdict = compare(reference, got, Exactness.LOSSY)
        if verdict.outcome is Outcome.BROKEN:
            return verdict
        error = verdict.max_error
        if error is None and not _equal(reference, got):
            return Verdict(Outcome.BROKEN, None, tolerance, "values differ")
        if error is not None and error > tolerance:
            text = f"error {error:.3g} of the largest magnitude, {tolerance:.3g} is allowed"
            return Verdict(Outcome.BROKEN, error, tolerance, text)
        return Verdict(Outcome.OK, error, tolerance, verdict.reason)


def _equal(reference: np.ndarray, got: np.ndarray) -> bool:
    return bool(np.array_equal(reference, got, equal_nan=is_float(reference.dtype)))


def _differently_finite(reference: np.ndarray, got: np.ndarray) -> int:
    if not is_float(reference.dtype) or not is_float(got.dtype):
        return 0
    a, b = reference.astype(np.float64), got.astype(np.float64)
    strange = ~(np.isfinite(a) & np.isfinite(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return int(np.count_nonzero(strange & ~same))


def narrowest_float(model: ir.Model) -> np.dtype | None:
    """Return the float type with the coarsest rounding in `model`."""
    return narrowest(v for g in all_graphs(model.graph) for v in all_values(g))


def compare_outputs(
    model: ir.Model, seen: Observations, results: Sequence[Feed], allowance: Allowance, seed: int
) -> dict[str, Verdict]:
    """Judge each output of a second model against those of `model`.

    Args:
        model: Used only where an error must be weighed against rounding.
        seen: Feeds, and what `model` gave for them.
        results: What the second model gave for them.
        allowance: What still counts as equal.
        seed: Chooses the signs of the disturbance that rounding is measured with.
    """
    names, narrow = [n for n, a in seen.outputs[0].items() if _is_array(a)], narrowest_float(model)
    verdicts = {n: _judge(n, seen, results, allowance, narrow, 0.0) for n in names}
    doubtful = [n for n in names if verdicts[n].outcome is Outcome.BROKEN]
    if doubtful and allowance.tolerance is None:
        moved = outputs_moved(model, seen, doubtful, seed)
        unit = rounding_unit(narrow) if narrow is not None else 0.0
        verdicts |= {
            n: _judge(n, seen, results, allowance, narrow, moved[n] * unit) for n in doubtful
        }
    return verdicts


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _judge(
    name: str,
    seen: Observations,
    results: Sequence[Feed],
    allowance: Allowance,
    narrow: np.dtype | None,
    noise: float,
) -> Verdict:
    wanted = [o[name] for o in seen.outputs]
    pairs = zip(wanted, (r[name] for r in results), strict=True)
    verdict = worst([allowance.judge(w, g, narrow, noise) for w, g in pairs])
    if verdict.outcome is Outcome.OK and not verdict.reason:
        return replace(verdict, reason=uninformative(wanted) or "")
    return verdict
