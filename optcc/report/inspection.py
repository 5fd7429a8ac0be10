"""What `inspect`, `passes` and `doctor` have to say, and its words on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optcc.report.wording import byte_size

__all__ = [
    "EngineInspection",
    "InspectResult",
    "ModelInspection",
    "PassInfo",
    "PlanInfo",
    "PlannedPass",
    "PlannedStage",
    "render_engine",
    "render_model",
    "render_passes",
    "render_plan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInspection:
    """An ONNX file.

    Attributes:
        bytes: Of the file and its external data together.
        inputs: Name to type and dims, `float32[batch, 3, 224, 224]`.
        ops: Op type (with its domain if it is not ONNX's own) to node count.
        flops: Two per multiply-add, at `flops_at`; None when the shapes do not tell.
        flops_at: The input shapes that `flops` holds for.
        notes: What a person should know: dynamic dims, subgraphs, quantized already.
    """

    file: str
    bytes: int
    opset: int
    ir_version: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: int
    ops: dict[str, int]
    parameters: int
    flops: int | None = None
    flops_at: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInspection:
    """A serialized engine.

    Attributes:
        kind: "tensorrt_rtx", "tensorrt", or "unknown".
        magic: First bytes, hexadecimal.
        version: Of the runtime that wrote it.
        targets: Names of the GPU targets inside.
        achieved: Precision to node count, as far as it can be told.
        notes: Where it runs, and why something cannot be told.
    """

    file: str
    bytes: int
    kind: str
    magic: str
    version: str = ""
    targets: list[str] = field(default_factory=list)
    achieved: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


_OWN = "optcc-compiler"

InspectResult = ModelInspection | EngineInspection


@dataclass(frozen=True, slots=True, kw_only=True)
class PassInfo:
    """One pass that an installed distribution offers.

    Attributes:
        problem: Why it cannot be imported; empty when it can.
    """

    name: str
    distribution: str
    exactness: str = ""
    summary: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """One pass of a plan, its promise, and the distribution or script it comes from."""

    name: str
    exactness: str
    distribution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """Passes that run one after the other.

    Attributes:
        rounds: Most times that they run; a round that changes nothing is the last.
        branch: They work on a copy, which becomes one artifact.
    """

    name: str
    rounds: int
    branch: bool
    passes: list[PlannedPass]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInfo:
    """What `compile` would run."""

    model: str
    precision: str
    stages: list[PlannedStage]


def render_model(model: ModelInspection) -> str:
    """Return one fact a line, then the ops by count."""
    flops = "not known" if model.flops is None else f"{model.flops:,}"
    at = f" at {model.flops_at}" if model.flops is not None and model.flops_at else ""
    rows = [
        ("file", f"{model.file}, {byte_size(model.bytes)}"),
        ("format", f"ONNX, opset {model.opset}, IR version {model.ir_version}"),
        *(("input", f"{name}: {kind}") for name, kind in model.inputs.items()),
        *(("output", f"{name}: {kind}") for name, kind in model.outputs.items()),
        ("parameters", f"{model.parameters:,}"),
        ("FLOPs", f"{flops}{at}"),
        ("nodes", f"{model.nodes}"),
        *((f"  {name}", str(count)) for name, count in _by_count(model.ops)),
        *(("note", note) for note in model.notes),
    ]
    return _aligned(rows)


def render_engine(engine: EngineInspection) -> str:
    """Return one fact a line."""
    rows = [
        ("file", f"{engine.file}, {byte_size(engine.bytes)}"),
        ("format", f"{engine.kind} engine, magic {engine.magic}"),
        ("version", engine.version or "not known"),
        ("targets", ", ".join(engine.targets) or "not known"),
        *((f"  {name}", f"{count} nodes") for name, count in engine.achieved.items()),
        *(("note", note) for note in engine.notes),
    ]
    return _aligned(rows)


def render_passes(passes: Sequence[PassInfo]) -> str:
    """Return one line per pass: name, promise, what it does."""
    rows = [
        (info.name, f"{info.exactness:<9} {info.summary}" if not info.problem else info.problem)
        for info in passes
    ]
    return _aligned(rows)


def render_plan(plan: PlanInfo) -> str:
    """Return a headline a stage, and a line a pass."""
    lines = [f"{plan.model} at {plan.precision}"]
    width = max(len(p.name) for s in plan.stages for p in s.passes)
    for stage in plan.stages:
        rounds = f", until stable, at most {stage.rounds} rounds" if stage.rounds > 1 else ""
        lines += ["", f"{stage.name}{', on a copy' if stage.branch else ''}{rounds}"]
        for one in stage.passes:
            own = "" if one.distribution == _OWN else f"  ({one.distribution})"
            lines.append(f"  {one.name:<{width}}  {one.exactness:<8}{own}".rstrip())
    return "\n".join(lines) + "\n"


def _by_count(ops: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(ops.items(), key=lambda item: (-item[1], item[0]))


def _aligned(rows: Sequence[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"{name:<{width}}  {text}".rstrip() + "\n" for name, text in rows)
