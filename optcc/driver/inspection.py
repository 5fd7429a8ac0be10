"""What is in a file, and what is installed."""

from __future__ import annotations

from pathlib import Path

from optcc.backends.engine_file import EngineInfo, inspect_engine, is_engine
from optcc.driver.facts import model_info
from optcc.errors import ConfigError
from optcc.frontends.onnx_file import load
from optcc.graph.cost import ModelCost, cost_of
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from optcc.report.inspection import EngineInspection, InspectResult, ModelInspection, PassInfo

__all__ = ["inspect_file", "list_passes"]


def inspect_file(path: Path) -> InspectResult:
    """Describe a model or an engine file.

    Raises:
        ConfigError: The file does not exist.
        UnsupportedModelError: It is neither a model nor an engine that can be read.
    """
    if not path.is_file():
        raise ConfigError(f"{path} does not exist or is not a file")
    if is_engine(path):
        return _engine(path, inspect_engine(path))
    loaded = load(path)
    cost, info = cost_of(loaded.model), model_info(loaded)
    return ModelInspection(
        file=path.name,
        bytes=info.bytes,
        opset=info.opset,
        ir_version=info.ir_version,
        inputs=info.inputs,
        outputs=info.outputs,
        nodes=info.nodes,
        ops=dict(cost.operators),
        parameters=info.parameters,
        flops=cost.flops,
        flops_at=", ".join(f"{n} {'x'.join(map(str, s))}" for n, s in cost.assumed.items()),
        notes=_cost_notes(cost),
    )


def _cost_notes(cost: ModelCost) -> list[str]:
    notes = []
    if cost.uncounted:
        notes.append(f"FLOPs leave out nodes of unknown shape: {', '.join(cost.uncounted[:5])}")
    if any(op in cost.operators for op in ("QuantizeLinear", "DequantizeLinear", "QLinearConv")):
        notes.append("quantized already")
    return notes


def _engine(path: Path, info: EngineInfo) -> EngineInspection:
    header = info.header
    notes = [] if info.launches is None else [f"{info.launches} kernel launches per inference"]
    if not info.achieved:
        notes.append("the precision of its layers cannot be read from this file")
    return EngineInspection(
        file=path.name,
        bytes=info.bytes,
        kind=header.backend or "unknown",
        magic=header.magic,
        version=header.version,
        targets=list(header.targets),
        achieved=dict(info.achieved),
        notes=notes,
    )


def list_passes() -> list[PassInfo]:
    """List all installed passes, sorted by name; one that cannot be imported says why."""
    registry = discover_passes()
    return [_pass_info(registry, entry) for entry in registry]


def _pass_info(registry: PassRegistry, entry: PassEntry) -> PassInfo:
    try:
        made = registry.get(entry.name)
    except ConfigError as error:
        return PassInfo(name=entry.name, distribution=entry.distribution, problem=error.what)
    summary = (type(made).__doc__ or "").strip().splitlines()
    return PassInfo(
        name=entry.name,
        distribution=entry.distribution,
        exactness=made.exactness.value,
        summary=summary[0] if summary else "",
    )
