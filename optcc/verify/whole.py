"""Check a whole model against what it gave before a stage, with the runtime's help switched off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.walk import all_graphs, all_nodes, all_values
from optcc.passkit.contract import Exactness, Feed
from optcc.verify.cut import draws_random, narrowest
from optcc.verify.noise import change, disturb, disturbed_model, rounding_unit
from optcc.verify.numeric import Outcome, Verdict, compare, provable, uninformative, worst
from optcc.verify.observe import Observations
from optcc.verify.reference import open_model

__all__ = ["check_whole", "outputs_moved"]


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
    narrow = narrowest(v for g in all_graphs(before.graph) for v in all_values(g))
    exactness = provable(exactness, narrow)
    try:
        results = _run(after, seen.probes, names)
    except BackendError as error:
        text = f"the model cannot be run after the change: {error.what}"
        return Verdict(Outcome.BROKEN, reason=text)
    verdicts = {n: _judge(n, seen, results, exactness, narrow) for n in names}
    broken = [n for n in names if verdicts[n].outcome is Outcome.BROKEN]
    if broken and exactness is Exactness.ROUNDING:
        moved = outputs_moved(before, seen, names, seed)
        unit = rounding_unit(narrow) if narrow is not None else 0.0
        verdicts |= {
            n: _judge(n, seen, results, exactness, narrow, moved[n] * unit) for n in broken
        }
    return worst(list(verdicts.values()))


def _run(model: ir.Model, probes: Sequence[Feed], names: Sequence[str]) -> list[Feed]:
    with open_model(model) as session:
        return [session.run(p, names) for p in probes]


def _judge(
    name: str,
    seen: Observations,
    results: Sequence[Feed],
    exactness: Exactness,
    narrow: np.dtype | None,
    noise: float = 0.0,
) -> Verdict:
    wanted = [o[name] for o in seen.outputs]
    pairs = zip(wanted, (r[name] for r in results), strict=True)
    verdict = worst([compare(w, g, exactness, narrow, noise=noise) for w, g in pairs])
    if verdict.outcome is Outcome.BROKEN:
        text = f"output {name!r}: {verdict.reason}"
        return Verdict(Outcome.BROKEN, verdict.max_error, verdict.allowed, text)
    silent = None if name in seen.fixed else uninformative(wanted)
    if verdict.outcome is Outcome.OK and silent:
        text = f"output {name!r}: {silent}"
        return Verdict(Outcome.INCONCLUSIVE, verdict.max_error, verdict.allowed, text)
    return verdict


def outputs_moved(
    model: ir.Model, seen: Observations, names: Sequence[str], seed: int
) -> dict[str, float]:
    """Measure how far a small disturbance moves each output of the whole model."""
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
    return moved
