"""What one compile knows so far; each step reads what earlier steps left and adds its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from optcc.artifacts.output_folder import OutputFolder
from optcc.backends.contract import BuildOutcome
from optcc.calibrate.dataset import Dataset
from optcc.config.request import CompileRequest
from optcc.driver.data import Data
from optcc.frontends.onnx_file import LoadedModel
from optcc.measure.accuracy import AccuracyFigures
from optcc.measure.gates import GateResult
from optcc.measure.resources import PeakMemory, StageTimers
from optcc.passkit.qtypes import NodeDecision, RangeTable
from optcc.pipeline.outcome import PassOutcome
from optcc.pipeline.plan import Plan
from optcc.pipeline.registry import PassRegistry
from optcc.progress import Progress
from optcc.report.schema import EngineRow, LatencyRow
from optcc.runtime.session import OptimizationLevel

__all__ = ["CPU_MODEL", "MODEL", "Artifact", "Work"]

MODEL = "model.onnx"
CPU_MODEL = "model.onnxruntime.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One emitted model.

    Attributes:
        file: Its name in OUT.
        graph: What was written.
        judged: The graph that accuracy is taken on; differs where the CPU cannot run the narrow
            type honestly.
        simulated: Whether `judged` is such a stand-in.
        level: Runtime optimizations under which its accuracy is taken.
    """

    file: str
    graph: ir.Model
    judged: ir.Model
    simulated: bool = False
    level: OptimizationLevel = OptimizationLevel.OFF


@dataclass(slots=True, kw_only=True)
class Work:
    """The state of one compile.

    Attributes:
        plan: The stages that run.
        registry: The passes that they name.
        samples: What the artifacts are judged on: data, else seeded inputs; None when the model
            runs on none.
        notes: Warnings for the report, in the order they were given.
    """

    request: CompileRequest
    progress: Progress
    folder: OutputFolder
    memory: PeakMemory
    timers: StageTimers = field(default_factory=StageTimers)
    loaded: LoadedModel
    data: Data
    plan: Plan
    registry: PassRegistry
    original: Path
    samples: Dataset | None = None
    metric: str | None = None
    passes: list[PassOutcome] = field(default_factory=list)
    decisions: list[NodeDecision] = field(default_factory=list)
    ranges: RangeTable | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    outcomes: dict[str, BuildOutcome] = field(default_factory=dict)
    engines: list[EngineRow] = field(default_factory=list)
    accuracy: dict[str, AccuracyFigures] = field(default_factory=dict)
    latency: list[LatencyRow] = field(default_factory=list)
    gates: list[GateResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Tell the person now and the report later."""
        self.notes.append(text)
        self.progress.warn(text)

    def artifact(self, file: str) -> Artifact | None:
        """Return the emitted model of that name."""
        return next((a for a in self.artifacts if a.file == file), None)
