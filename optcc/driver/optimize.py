"""Run the stages of the preset: the trunk, then one branch per spelling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optcc.artifacts.trace import TraceWriter
from optcc.calibrate.choose import choose_ranges
from optcc.calibrate.collector import collect
from optcc.calibrate.ranges import load_ranges, ranges_to_bytes
from optcc.driver.work import Work
from optcc.errors import ConfigError
from optcc.graph.io import clone, write_model
from optcc.passkit.contract import Fact, Feed
from optcc.passkit.qtypes import QuantPlan, RangeTable
from optcc.pipeline.context import RunnerContext, no_samples
from optcc.pipeline.plan import Stage
from optcc.pipeline.runner import Runner, SaveReproducer

__all__ = ["optimize"]

REPRODUCERS = "reproducer"


def optimize(work: Work) -> dict[str, ir.Model]:
    """Run the preset of the precision.

    Returns:
        The optimized graph under "trunk" and each branch under the name of its stage.

    Raises:
        VerificationError: A pass broke its promise.
    """
    plan, registry = work.plan, work.registry
    with TraceWriter(work.folder.stage / "trace.jsonl") as trace:
        ctx = _context(work, trace)
        runner = Runner(
            registry=registry,
            verify=work.request.verify,
            keep_going=work.request.keep_going,
            save_reproducer=_reproducer(work),
            warn=work.warn,
        )
        graphs = {"trunk": work.loaded.model}
        for stage in plan.stages:
            _run(work, runner, stage, ctx, graphs)
    work.decisions = list(ctx.plan.decisions) if ctx.plan is not None else []
    work.ranges = ctx.ranges
    return graphs


def _context(work: Work, trace: TraceWriter) -> RunnerContext:
    samples = work.data.ranges or work.data.evaluation
    return RunnerContext(
        signature=work.loaded.signature,
        profile=work.data.profile,
        seed=work.request.seed,
        cpu_class=work.request.cpu_class.value,
        sample_source=samples.__iter__ if samples is not None else no_samples,
        sink=lambda event, facts: trace.emit(event, **facts),
    )


def _run(
    work: Work, runner: Runner, stage: Stage, ctx: RunnerContext, graphs: dict[str, ir.Model]
) -> None:
    if Fact.RANGES in stage.assumes and ctx.ranges is None:
        _calibrate(work, graphs["trunk"], ctx)
    work.progress.stage(stage.name)
    with work.timers.stage(stage.name):
        model = graphs["trunk"]
        if stage.branch:
            model = graphs[stage.name] = clone(model)
        try:
            work.passes += runner.run_stage(model, stage, ctx)
        finally:
            ctx.flush()


def _calibrate(work: Work, model: ir.Model, ctx: RunnerContext) -> None:
    if ctx.plan is None:
        raise ConfigError("the pipeline asks for ranges before any pass has placed what needs them")
    work.progress.stage("calibrate")
    with work.timers.stage("calibrate"):
        ctx.ranges = _ranges(work, model, ctx.plan)
        work.folder.write("ranges.json", ranges_to_bytes(ctx.ranges))


def _ranges(work: Work, model: ir.Model, plan: QuantPlan) -> RangeTable:
    if work.request.ranges is not None:
        return load_ranges(work.request.ranges, plan.observed())
    dataset = work.data.ranges
    if dataset is None:
        raise ConfigError("precision 'int8' needs calibration data", hint="add --calib PATH")
    seen = collect(model, plan.observed(), dataset, work.progress)
    return choose_ranges(model, plan, seen, dataset, work.request.calibrator)


def _reproducer(work: Work) -> SaveReproducer:
    def save(
        name: str, before: ir.Model | None, after: ir.Model | None, feeds: Sequence[Feed]
    ) -> str | None:
        folder = work.folder.stage / REPRODUCERS / _file_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        for model, file in ((before, "before.onnx"), (after, "after.onnx")):
            if model is not None:
                write_model(model, folder / file)
        for k, feed in enumerate(feeds):
            np.savez(folder / f"feeds_{k}.npz", **feed)  # type: ignore[arg-type]
        failed = f"{work.request.out_folder.name}.failed"
        return (Path(failed) / REPRODUCERS / folder.name).as_posix()

    return save


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:80]
