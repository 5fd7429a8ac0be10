"""Run the stages of a preset that need no samples, in memory, and keep what they say."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from optcc.config.request import Precision
from optcc.config.selection import PassSelection
from optcc.driver.data import profile_of
from optcc.driver.evidence import Evidence, EvidenceMaker
from optcc.driver.planning import planned
from optcc.errors import VerificationError
from optcc.frontends.onnx_file import load
from optcc.graph.io import clone
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.plan import Stage
from optcc.pipeline.runner import Runner
from optcc.progress import Progress
from optcc.report.explanation import HeavyNode

__all__ = ["rehearse"]


def rehearse(
    path: Path, precision: Precision, selection: PassSelection, progress: Progress
) -> Evidence:
    """Run the stages before calibration on the model at `path`; nothing is written.

    Raises:
        ConfigError: The file does not exist, or the selection names what does not.
        UnsupportedModelError: The model is malformed or not supported.
        VerificationError: A pass broke its promise.
    """
    progress.stage("load")
    loaded, made = load(path), EvidenceMaker()
    plan, registry = planned(precision, selection)
    made.graph(loaded.model, final=False)
    ctx = RunnerContext(
        signature=loaded.signature, profile=profile_of(loaded.signature), sink=made.event
    )
    runner = Runner(registry=registry, warn=progress.warn)
    graphs = [loaded.model]
    for stage in plan.stages:
        if stage.assumes:
            break
        progress.stage(stage.name)
        if stage.branch:
            graphs.append(clone(loaded.model))
        _run(runner, graphs[-1] if stage.branch else loaded.model, stage, ctx, made)
    for model in graphs:
        made.graph(model, final=True)
    if ctx.plan is not None:
        made.heavy = [
            HeavyNode(node=d.node, op_type=d.op_type, wanted=d.wanted, reason=d.reason)
            for d in ctx.plan.decisions
        ]
    return made.joined(loaded.name, precision.value)


def _run(
    runner: Runner, model: ir.Model, stage: Stage, ctx: RunnerContext, made: EvidenceMaker
) -> None:
    try:
        outcomes = runner.run_stage(model, stage, ctx)
    except VerificationError as error:
        raise VerificationError(
            error.what, hint="`optcc compile` keeps a reproducer of this", where=error.where
        ) from error
    for outcome in outcomes:
        made.left_alone(outcome.name, [(r.node, r.reason) for r in outcome.rejects])
