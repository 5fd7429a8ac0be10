"""Put the report together from what a compile knows, whole or up to where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx_ir as ir

from optcc.config.request import Precision
from optcc.driver.engine_figures import ENGINE_SUFFIX
from optcc.driver.facts import (
    finding_rows,
    model_info,
    precision_rows,
    profile_rows,
    size_rows,
)
from optcc.driver.provenance import reproduce_line
from optcc.driver.work import Work
from optcc.measure.accuracy import AccuracyFigures
from optcc.measure.environment import environment
from optcc.passkit.qtypes import NodeDecision
from optcc.pipeline.outcome import PassOutcome
from optcc.report.schema import (
    SCHEMA_VERSION,
    Accuracy,
    AccuracyRow,
    Calibration,
    Check,
    Gate,
    Latency,
    OutputError,
    PassRow,
    Report,
    Resources,
)
from optcc.report.verdict import Evidence, decide
from optcc.runtime.session import OptimizationLevel

__all__ = ["assemble"]

_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN")
_LEVELS = {
    OptimizationLevel.OFF: "none",
    OptimizationLevel.BASIC: "basic",
    OptimizationLevel.EXTENDED: "extended",
    OptimizationLevel.ALL: "all",
}
_ENGINE_LEVEL = "the engine's own"


def assemble(work: Work, manifest_sha256: str, failure: str = "") -> Report:
    """Build the report.

    Args:
        work: All that is known.
        manifest_sha256: Digest of the manifest that the numbers belong to; empty after a failure.
        failure: Why the compile stopped early; makes the verdict `fail`.
    """
    calibration, accuracy = _calibration(work), _accuracy(work)
    passes = [_pass_row(p) for p in work.passes]
    nodes = precision_rows(_decisions(work), work.outcomes)
    gates = [
        Gate(name=g.name, limit=g.limit, value=g.value, passed=g.passed, file=g.file)
        for g in work.gates
    ]
    verdict, reasons = decide(
        Evidence(
            precision=work.data.precision.value,
            calibration=calibration,
            passes=passes,
            nodes=nodes,
            accuracy=accuracy,
            engines=work.engines,
            gates=gates,
        )
    )
    return Report(
        schema_version=SCHEMA_VERSION,
        verdict="fail" if failure else verdict,
        reasons=[failure] if failure else reasons,
        model=model_info(work.loaded),
        target=list(dict.fromkeys(t for e in work.engines for t in e.targets)),
        profile=profile_rows(work.data.profile),
        calibration=calibration,
        passes=passes,
        precision=nodes,
        accuracy=accuracy,
        latency=Latency(artifacts=work.latency),
        size=size_rows(work.folder.stage, work.loaded.nbytes),
        resources=_resources(work),
        engines=work.engines,
        gates=gates,
        search=None,
        pruning=None,
        warnings=work.notes,
        environment=environment(),
        manifest_sha256=manifest_sha256,
        reproduce=reproduce_line(work.request, work.data),
    )


def _calibration(work: Work) -> Calibration | None:
    if work.data.precision is not Precision.INT8:
        return None
    data, held = work.data, work.data.held_back
    methods: Counter[str] = Counter()
    if work.ranges is not None:
        methods.update(r.method for r in work.ranges.signed.values())
    saved = work.request.ranges
    return Calibration(
        source=saved.name if saved is not None else data.source,
        samples=data.ranges.samples if data.ranges is not None else 0,
        held_back=held.samples if held is not None else 0,
        calibrator=work.request.calibrator.value,
        methods=dict(sorted(methods.items())),
        findings=finding_rows(data.findings),
    )


def _accuracy(work: Work) -> Accuracy | None:
    if not work.accuracy:
        return None
    source = work.samples.source if work.samples is not None else ""
    if work.samples is not None and work.samples is work.data.held_back:
        source = f"{source}, samples held back from calibration"
    rows = [
        _accuracy_row(a.file, "onnxruntime", _LEVELS[a.level], a.simulated, work.accuracy[a.file])
        for a in work.artifacts
    ]
    rows += [
        _accuracy_row(e.file, e.backend, _ENGINE_LEVEL, False, work.accuracy[e.file])
        for e in work.engines
        if e.file.endswith(ENGINE_SUFFIX) and e.file in work.accuracy
    ]
    return Accuracy(source=source, artifacts=rows)


def _accuracy_row(
    file: str, runtime: str, level: str, simulated: bool, figures: AccuracyFigures
) -> AccuracyRow:
    return AccuracyRow(
        file=file,
        runtime=runtime,
        optimization_level=level,
        metric=figures.metric,
        value=figures.value,
        original=figures.original,
        drop_points=figures.drop_points,
        per_class=figures.per_class,
        mcnemar_p=figures.mcnemar_p,
        agreement=figures.agreement,
        outputs=[
            OutputError(name=o.name, max_abs=o.max_abs, sqnr_db=o.sqnr_db, cosine=o.cosine)
            for o in figures.outputs
        ],
        samples=figures.samples,
        simulated=simulated,
        note=figures.note,
    )


def _pass_row(outcome: PassOutcome) -> PassRow:
    check = outcome.check
    return PassRow(
        name=outcome.name,
        stage=outcome.stage,
        exactness=outcome.exactness.value,
        seconds=round(outcome.seconds, 4),
        rewrites=len(outcome.rewrites),
        rejects=[{"node": r.node, "reason": r.reason} for r in outcome.rejects],
        check=Check(
            kind=check.kind,  # type: ignore[arg-type]
            conclusive=check.conclusive,
            inconclusive=check.inconclusive,
            max_error=check.max_error,
            allowed=check.allowed,
            verdict=check.verdict,  # type: ignore[arg-type]
        ),
    )


def _decisions(work: Work) -> list[NodeDecision]:
    """Return what was planned; without a plan the heavy nodes are listed as they came."""
    if work.decisions or not work.artifacts:
        return work.decisions
    return [
        NodeDecision(node=n.name or "", op_type=n.op_type, wanted=work.data.precision.value)
        for n in _nodes(work.artifacts[0].graph)
        if n.op_type in _HEAVY
    ]


def _nodes(model: ir.Model) -> list[ir.Node]:
    return list(model.graph)


def _resources(work: Work) -> Resources:
    stages: Mapping[str, float] = work.timers.seconds
    return Resources(
        compile_s=round(work.timers.total_s, 3),
        peak_mib=round(work.memory.peak_mib, 1),
        stages={name: round(s, 3) for name, s in stages.items()},
    )
