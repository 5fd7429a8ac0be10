"""Hold a pass to its promise in a unit test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.config.request import VerifyMode
from optcc.config.shapes import profile_for
from optcc.errors import VerificationError
from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.contract import Feed, Pass, PassResult
from optcc.passkit.testing import bare_context
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.plan import Stage
from optcc.pipeline.registry import PassEntry, PassRegistry
from optcc.pipeline.runner import Runner
from optcc.runtime.session import Session
from optcc.verify.numeric import Outcome, compare, uninformative

__all__ = ["apply", "caught", "feed", "keeps", "ops", "reasons", "run"]


def ops(model: ir.Model) -> list[str]:
    """Operators of all graphs in order."""
    return [n.op_type for n in model.graph.all_nodes()]


def run(model: ir.Model, feeds: Feed) -> Feed:
    """Run without any optimization of the runtime."""
    return Session(to_bytes(model)).run(feeds)


def feed(model: ir.Model, seed: int = 0, **symbols: int) -> Feed:
    """Draw inputs; each dynamic dim gets its size by its symbol."""
    rng = np.random.default_rng(seed)
    feeds: Feed = {}
    for spec in signature_of(model).inputs:
        dims = [d if isinstance(d, int) else symbols[str(d)] for d in spec.dims or ()]
        assert spec.dtype is not None
        drawn = rng.standard_normal(dims) * 2
        if spec.dtype == ir.DataType.BOOL:
            drawn = drawn > 0
        feeds[spec.name] = np.asarray(drawn).astype(spec.dtype.numpy())
    return feeds


def apply(a_pass: Pass, model: ir.Model) -> PassResult:
    """Run the pass; the graph must stay sound and the signature the same."""
    signature = signature_of(model)
    result = a_pass.run(model, bare_context())
    assert lint(model, signature) == []
    assert check(model) == []
    return result


def reasons(result: PassResult) -> list[tuple[str, str]]:
    """Node and reason of each reject."""
    return [(r.node, r.reason) for r in result.rejects]


def keeps(a_pass: Pass, model: ir.Model, feeds: Sequence[Feed]) -> PassResult:
    """Apply the pass and compare all outputs as it promises; it must change something once."""
    before = [run(model, f) for f in feeds]
    result = apply(a_pass, model)
    assert result.rewrites
    for feeds_k, reference in zip(feeds, before, strict=True):
        got = run(model, feeds_k)
        for name, array in reference.items():
            verdict = compare(array, got[name], a_pass.exactness)
            assert verdict.outcome is Outcome.OK, (name, verdict)
            if array.dtype.kind == "f" and array.size > 1:
                assert uninformative([array]) is None
    assert not apply(a_pass, model).rewrites
    return result


def caught(twin: Pass, model: ir.Model) -> str:
    """Run a broken twin under the real runner, and return what the error says."""
    registry = PassRegistry([PassEntry(twin.name, "tests", lambda: twin)])
    signature = signature_of(model)
    ctx = RunnerContext(signature=signature, profile=profile_for(signature, None, None))
    stage = Stage(name="broken", passes=(twin.name,), assumes=frozenset(twin.needs))
    try:
        Runner(registry=registry, verify=VerifyMode.EACH).run_stage(model, stage, ctx)
    except VerificationError as error:
        return error.what
    raise AssertionError("the runner let a broken pass through")
