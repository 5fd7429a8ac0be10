"""Check a whole model against what it gave before a stage, with the runtime's help switched off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.walk import all_nodes
from optcc.passkit.contract import Exactness, Feed
from optcc.verify.cut import draws_random
from optcc.verify.noise import change, disturb, disturbed_model, rounding_unit
from optcc.verify.numeric import Outcome, Verdict, compare, uninformative, worst
from optcc.verify.observe import Observations
from optcc.verify.reference import open_model

__all__ = ["check_whole"]


def check_whole(
    before: ir.Model, seen: Observations, after: ir.Model, exactness: Exactness, seed: int
) -> Verdict:
    """Compare the outputs of `after` with those that were observed of `before`.

    Args:
        before: Used only where an error must be weighed against rounding.
        seen: Observations of `before`.
        after: The changed model.
        exactness: The weakest promise of what changed it.
        seed: Chooses the signs of the disturbance that rounding is measured with.
    """
    if not seen.probes:
        return Verdict(Outcome.INCONCLUSIVE, reason="there is no probe that the model runs on")
    if any(draws_random(n) for n in all_nodes(before.graph)):
        return Verdict(Outcome.INCONCLUSIVE, reason="the model draws random numbers")
    names = tuple(seen.outputs[0])
    try:
        results = _run(after, seen.probes, names)
    except BackendError as error:
        text = f"the model cannot be run after the change: {error.what}"
        return Verdict(Outcome.BROKEN, reason=text)
    verdicts = {n: _judge(n, seen, results, exactness) for n in names}
    broken = [n for n in names if verdicts[n].outcome is Outcome.BROKEN]
    if broken and exactness is Exactness.ROUNDING:
        noise = _noise(before, seen, names, seed)
        verdicts |= {n: _judge(n, seen, results, exactness, noise[n]) for n in broken}
    return worst(list(verdicts.values()))


def _run(model: ir.Model, probes: Sequence[Feed], names: Sequence[str]) -> list[Feed]:
    with open_model(model) as session:
        return [session.run(p, names) for p in probes]


def _judge(
    name: str,
    seen: Observations,
    results: Sequence[Feed],
    exactness: Exactness,
    noise: float = 0.0,
) -> Verdict:
    wanted = [o[name] for o in seen.outputs]
    pairs = zip(wanted, (r[name] for r in results), strict=True)
    verdict = worst([compare(w, g, exactness, noise=noise) for w, g in pairs])
    if verdict.outcome is Outcome.BROKEN:
        text = f"output {name!r}: {verdict.reason}"
        return Verdict(Outcome.BROKEN, verdict.max_error, verdict.allowed, text)
    silent = None if name in seen.fixed else uninformative(wanted)
    if verdict.outcome is Outcome.OK and silent:
        text = f"output {name!r}: {silent}"
        return Verdict(Outcome.INCONCLUSIVE, verdict.max_error, verdict.allowed, text)
    return verdict


def _noise(
    model: ir.Model, seen: Observations, names: Sequence[str], seed: int
) -> dict[str, float]:
    """Measure what rounding alone may do to each output of the whole model."""
    rng = np.random.default_rng([seed, 2])
    moved = dict.fromkeys(names, 0.0)
    for _ in range(2):
        probes = [{k: disturb(a, rng) for k, a in p.items()} for p in seen.probes]
        try:
            results = _run(disturbed_model(model, rng), probes, names)
        except BackendError:
            continue
        for wanted, got in zip(seen.outputs, results, strict=True):
            moved = {n: max(m, change(wanted[n], got[n])) for n, m in moved.items()}
    return {n: m * _unit(seen, n) for n, m in moved.items()}


def _unit(seen: Observations, name: str) -> float:
    return rounding_unit(seen.outputs[0][name].dtype)
