"""Turn what the rooms found into rows of the report; one small function per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from optcc.artifacts.manifest import file_sha256
from optcc.backends.contract import BuildOutcome, BuildStatus, NodeAchieved
from optcc.calibrate.dataset import DataFinding
from optcc.config.shapes import ShapeProfile
from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.signature import TensorSpec
from optcc.passkit.qtypes import NodeDecision
from optcc.report.schema import (
    Achieved,
    EngineRow,
    Fallback,
    Finding,
    ModelInfo,
    NodePrecision,
    Profile,
    SizeRow,
)

__all__ = [
    "engine_row",
    "finding_rows",
    "model_info",
    "precision_rows",
    "profile_rows",
    "size_rows",
]

_COUNTED = ("int8", "fp8", "fp16", "bf16", "fp32", "int4", "unknown")


def model_info(loaded: LoadedModel) -> ModelInfo:
    """Describe the input model."""
    return ModelInfo(
        name=loaded.name,
        sha256=loaded.sha256,
        bytes=loaded.nbytes,
        opset=loaded.opset,
        ir_version=loaded.ir_version,
        nodes=loaded.nodes,
        parameters=loaded.parameters,
        inputs={s.name: _type_text(s) for s in loaded.signature.inputs},
        outputs={s.name: _type_text(s) for s in loaded.signature.outputs},
    )


def _type_text(spec: TensorSpec) -> str:
    dtype = spec.dtype.name.lower() if spec.dtype is not None else "unknown"
    if spec.dims is None:
        return f"{dtype}[...]"
    return f"{dtype}[{', '.join('?' if d is None else str(d) for d in spec.dims)}]"


def profile_rows(profile: ShapeProfile) -> list[Profile]:
    """List the shapes that were built for."""
    return [
        Profile(
            input=i.name, min=list(i.min), opt=list(i.opt), max=list(i.max), source=profile.source
        )
        for i in profile.inputs
    ]


def finding_rows(findings: Sequence[DataFinding]) -> list[Finding]:
    """List what is doubtful about the data."""
    return [Finding(code=f.code, message=f.message, severity=f.severity) for f in findings]


def precision_rows(
    decisions: Sequence[NodeDecision], outcomes: Mapping[str, BuildOutcome]
) -> list[NodePrecision]:
    """Join what was planned with what every backend shows, in graph order."""
    got = {b: {n.node: n for n in o.nodes} for b, o in outcomes.items()}
    rows = [_planned(d, got) for d in decisions]
    planned = {d.node for d in decisions}
    extra: dict[str, NodeAchieved] = {}
    for nodes in got.values():
        extra.update({n: a for n, a in nodes.items() if n not in planned and a.wanted})
    rows += [
        _planned(NodeDecision(node=n, op_type=a.op_type, wanted=a.wanted), got)
        for n, a in extra.items()
    ]
    return rows


def _planned(
    decision: NodeDecision, got: Mapping[str, Mapping[str, NodeAchieved]]
) -> NodePrecision:
    return NodePrecision(
        node=decision.node,
        op_type=decision.op_type,
        wanted=decision.wanted,
        reason=decision.reason,
        got={b: nodes[decision.node].got for b, nodes in got.items() if decision.node in nodes},
    )


def engine_row(
    backend: str, outcome: BuildOutcome, model: Path, runs_on: str, launches_before: int | None
) -> EngineRow:
    """Describe what a backend made; where it builds no file of its own, `model` is what runs."""
    counts = outcome.achieved()
    file = outcome.file
    if file is None and outcome.status is BuildStatus.BUILT:
        file = model
    return EngineRow(
        backend=backend,
        status=outcome.status.value,
        version=outcome.version,
        file=file.name if file is not None else "",
        sha256=outcome.sha256 or (file_sha256(file) if file is not None else ""),
        bytes=outcome.bytes or (file.stat().st_size if file is not None else 0),
        build_s=round(outcome.build_s, 3),
        targets=list(outcome.targets),
        achieved=Achieved(**{k: counts.get(k, 0) for k in _COUNTED}),
        fallbacks=[
            Fallback(node=n.node, wanted=n.wanted, got=n.got, reason=n.reason)
            for n in outcome.fallbacks()
        ],
        launches=outcome.launches,
        launches_before=launches_before,
        reason=outcome.reason,
        node=outcome.node,
        runs_on=runs_on,
    )


def size_rows(folder: Path, original_bytes: int) -> list[SizeRow]:
    """Compare the size of every artifact with the original; external data counts."""
    rows = []
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".onnx", ".engine"):
            continue
        total = path.stat().st_size
        data = path.with_name(path.name + ".data")
        total += data.stat().st_size if data.exists() else 0
        rows.append(SizeRow(file=path.name, bytes=total, ratio=round(total / original_bytes, 4)))
    return rows
