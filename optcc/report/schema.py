"""report.json as types.

Units are in the names; metrics are values in 0..1; None means not measured.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "SCHEMA_VERSION",
    "Accuracy",
    "AccuracyRow",
    "Achieved",
    "Calibration",
    "Check",
    "EngineRow",
    "Fallback",
    "Finding",
    "Gate",
    "Latency",
    "LatencyRow",
    "ModelInfo",
    "NodePrecision",
    "OutputError",
    "PassRow",
    "Percentiles",
    "Profile",
    "Report",
    "Resources",
    "SizeRow",
    "Speedup",
    "Verdict",
]

SCHEMA_VERSION = "1.0"

Verdict = Literal["pass", "pass (agreement only)", "unverified", "inconclusive", "fail"]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input model as it came in."""

    name: str
    sha256: str
    bytes: int
    opset: int
    ir_version: int
    nodes: int
    parameters: int
    inputs: dict[str, str]
    outputs: dict[str, str]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shapes of one dynamic input that the engines were built for."""

    input: str
    min: list[int]
    opt: list[int]
    max: list[int]
    source: str


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something about the data that a person should know. `code` is stable."""

    code: str
    message: str
    severity: Literal["note", "warning", "red"]


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the ranges come from."""

    source: str
    samples: int
    held_back: int
    calibrator: str
    methods: dict[str, int]
    findings: list[Finding]


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Result of the numeric checks of one pass."""

    kind: Literal["bitwise", "rounding", "lossy", "none"]
    conclusive: int
    inconclusive: int
    max_error: float | None
    allowed: float | None
    verdict: Literal["pass", "inconclusive", "fail", "not checked"]


class PassRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one pass did."""

    name: str
    stage: str
    exactness: str
    seconds: float
    rewrites: int
    rejects: list[dict[str, str]]
    check: Check


class NodePrecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Precision of one node: wanted by us, got from the runtime's own plan."""

    node: str
    op_type: str
    wanted: str
    reason: str
    got: dict[str, str]


class OutputError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Error of one output against the original model. `sqnr_db` None: exact."""

    name: str
    max_abs: float
    sqnr_db: float | None
    cosine: float


class AccuracyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One emitted model on the evaluation samples."""

    file: str
    runtime: str
    optimization_level: str
    metric: str | None
    value: float | None
    original: float | None
    drop_points: float | None
    per_class: dict[str, dict[str, float]] | None
    mcnemar_p: float | None
    agreement: float | None
    outputs: list[OutputError]
    samples: int
    simulated: bool
    note: str = ""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accuracy of every emitted model."""

    source: str
    artifacts: list[AccuracyRow]


class Percentiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float


class Speedup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Original time over optimized time; above 1 is faster."""

    median: float
    ci95: tuple[float, float]


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Original against one artifact, interleaved in one process; or the reason why not.

    An engine that ran on a GPU has `device` and its own latency: wall time of a run with inputs and
    outputs on the device. The original's time on a CPU is no partner for it, so both that and the
    speed-up are None.
    """

    file: str
    runtime: str
    device: str = ""
    threads: int | None = None
    batch: int | None = None
    warmup_runs: int | None = None
    runs: int | None = None
    original: Percentiles | None = None
    optimized: Percentiles | None = None
    speedup: Speedup | None = None
    not_measured: str = ""


class Latency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency of every artifact."""

    artifacts: list[LatencyRow]


class SizeRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of one artifact against the original file."""

    file: str
    bytes: int
    ratio: float


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the compile itself took. `peak_mib` is the sum over the process group."""

    compile_s: float
    peak_mib: float
    stages: dict[str, float]


class Achieved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Node counts by the precision that the engine's plan shows."""

    int8: int = 0
    fp8: int = 0
    fp16: int = 0
    bf16: int = 0
    fp32: int = 0
    int4: int = 0
    unknown: int = 0


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that was asked to run narrow and does not."""

    node: str
    wanted: str
    got: str
    reason: str


class EngineRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One backend."""

    backend: str
    status: Literal["built", "failed", "skipped"]
    version: str = ""
    file: str = ""
    sha256: str = ""
    bytes: int = 0
    build_s: float = 0.0
    targets: list[str] = []
    achieved: Achieved = Achieved()
    fallbacks: list[Fallback] = []
    launches: int | None = None
    launches_before: int | None = None
    reason: str = ""
    node: str = ""
    runs_on: str = ""


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One limit and how it came out."""

    name: str
    limit: str
    value: str
    passed: bool | None
    file: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole report; the only source of every rendering."""

    schema_version: str
    verdict: Verdict
    reasons: list[str]
    model: ModelInfo
    target: list[str]
    profile: list[Profile]
    calibration: Calibration | None
    passes: list[PassRow]
    precision: list[NodePrecision]
    accuracy: Accuracy | None
    latency: Latency
    size: list[SizeRow]
    resources: Resources
    engines: list[EngineRow]
    gates: list[Gate]
    search: dict[str, str] | None
    pruning: dict[str, str] | None
    warnings: list[str]
    environment: dict[str, str]
    manifest_sha256: str
    reproduce: str
