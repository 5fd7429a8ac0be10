"""What a backend is: a job goes in, an outcome with each node's achieved precision comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from optcc.config.shapes import ShapeProfile
from optcc.progress import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "PRECISION_BITS",
    "Availability",
    "Backend",
    "BuildJob",
    "BuildOutcome",
    "BuildStatus",
    "NodeAchieved",
]

PRECISION_BITS = {"int4": 4, "fp4": 4, "int8": 8, "fp8": 8, "fp16": 16, "bf16": 16, "fp32": 32}
"""Width of the arithmetic operands by precision name."""


class BuildStatus(StrEnum):
    """How a build ended."""

    BUILT = "built"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a backend can be used here.

    Attributes:
        version: Of the runtime; empty when it cannot be imported.
        reason: Why it cannot be used; empty when it can.
        hint: What would make it usable.
    """

    ok: bool
    version: str = ""
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """One model for one backend.

    Attributes:
        model: ONNX file in this backend's spelling; it is only read.
        out: Where the engine goes; written whole or not at all. Backends that build no file of
            their own leave it alone.
        profile: Shapes to build for; every dynamic input must be in it.
        targets: Names from the target catalog; empty means the backend's defaults.
        wanted: Node name to "int8", "fp16" or "fp32", as planned.
        graph: The same graph as in `model` if it is in memory already, to save reading it again;
            it is only read. None lets the backend read `model`.
    """

    model: Path
    out: Path
    profile: ShapeProfile
    targets: tuple[str, ...] = ()
    wanted: Mapping[str, str] = field(default_factory=dict)
    graph: ir.Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAchieved:
    """What one node really runs in.

    Attributes:
        wanted: As planned; empty when nothing was planned for it.
        got: "int8", "fp8", "fp16", "bf16", "fp32", "int4"; "folded" when the runtime computed it
            while building; "unknown" when the runtime does not tell.
        reason: Why `got` differs from `wanted`, or why it is unknown; empty otherwise.
        launch: The kernel or fused node that holds it; empty when not known.
    """

    node: str
    op_type: str
    wanted: str
    got: str
    reason: str = ""
    launch: str = ""

    @property
    def is_fallback(self) -> bool:
        """Whether it was asked to run narrow and the runtime shows that it runs wider."""
        wanted, got = PRECISION_BITS.get(self.wanted), PRECISION_BITS.get(self.got)
        return wanted is not None and got is not None and got > wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    """What came of a job.

    Attributes:
        file: The engine, or None where the backend runs the ONNX file itself.
        sha256: Of `file`; empty without one.
        bytes: Size of `file`.
        build_s: Wall time in seconds.
        targets: Names that the artifact runs on, read from the artifact where it tells.
        nodes: In graph order.
        launches: Kernels that one inference starts; None when not known.
        reason: Why it failed or was skipped, one sentence.
        node: Name of the node that the failure is about; empty when it is about none.
        hint: What mends the failure.
        warnings: One line each.
    """

    status: BuildStatus
    file: Path | None = None
    sha256: str = ""
    bytes: int = 0
    build_s: float = 0.0
    version: str = ""
    targets: tuple[str, ...] = ()
    nodes: tuple[NodeAchieved, ...] = ()
    launches: int | None = None
    reason: str = ""
    node: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()

    def achieved(self) -> dict[str, int]:
        """Count nodes by what they run in, names sorted."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.got] = counts.get(node.got, 0) + 1
        return dict(sorted(counts.items()))

    def fallbacks(self) -> tuple[NodeAchieved, ...]:
        """Return the nodes that were asked to run narrow and do not, in graph order."""
        return tuple(node for node in self.nodes if node.is_fallback)


@runtime_checkable
class Backend(Protocol):
    """One runtime that an artifact is made for. Making one is cheap and imports nothing heavy.

    Attributes:
        name: As in `--backend` and in file names.
        builds_file: Whether `build` writes `job.out`; False where the ONNX file is what runs.
    """

    name: str
    builds_file: bool

    def availability(self) -> Availability:
        """Say whether the runtime can be used here, without loading it where that is possible."""
        ...

    def build(self, job: BuildJob, progress: Progress) -> BuildOutcome:
        """Build and read back what was achieved.

        A model that the runtime refuses gives a `failed` outcome; it does not raise.

        Raises:
            BackendError: The runtime itself cannot be used.
            WriteError: `job.out` cannot be written.
            ConfigError: A target that this backend does not know.
        """
        ...

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say in one sentence where the artifact runs."""
        ...
