"""Write the optimized graph in each backend's spelling."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optcc.config.request import Precision
from optcc.driver.work import CPU_MODEL, MODEL, Artifact, Work
from optcc.graph.io import write_model
from optcc.graph.shapes import without_inferable_types
from optcc.passkit.simulation import simulate_narrow
from optcc.runtime.session import OptimizationLevel

__all__ = ["emit"]

_SPELLINGS = ("lower-tensorrt", "precision")
_CPU_SPELLING = "lower-onnxruntime"


def emit(work: Work, graphs: Mapping[str, ir.Model]) -> None:
    """Write model.onnx and, where the CPU needs another spelling, its own file."""
    trunk = graphs["trunk"]
    main = next((graphs[name] for name in _SPELLINGS if name in graphs), trunk)
    chosen = {MODEL: main}
    if main is not trunk:
        chosen[CPU_MODEL] = graphs.get(_CPU_SPELLING, trunk)
    for file, graph in chosen.items():
        write_model(without_inferable_types(graph), work.folder.stage / file)
        work.artifacts.append(_artifact(work, file, graph))


def _artifact(work: Work, file: str, graph: ir.Model) -> Artifact:
    if file == CPU_MODEL:
        return Artifact(file=file, graph=graph, judged=graph, level=OptimizationLevel.ALL)
    if work.data.precision is not Precision.FP16:
        return Artifact(file=file, graph=graph, judged=graph)
    return Artifact(file=file, graph=graph, judged=simulate_narrow(graph), simulated=True)
