"""Reports for tests: a good one, and variations of it."""

from __future__ import annotations

import msgspec

from optcc.report.schema import (
    SCHEMA_VERSION,
    Accuracy,
    AccuracyRow,
    Achieved,
    Calibration,
    Check,
    EngineRow,
    Fallback,
    Finding,
    Gate,
    Latency,
    LatencyRow,
    ModelInfo,
    NodePrecision,
    OutputError,
    PassRow,
    Percentiles,
    Profile,
    Report,
    Resources,
    SizeRow,
    Speedup,
)


def pass_row(name: str, rewrites: int, *, conclusive: int, inconclusive: int = 0) -> PassRow:
    check = Check(
        kind="rounding",
        conclusive=conclusive,
        inconclusive=inconclusive,
        max_error=2.4e-7,
        allowed=1e-5,
        verdict="pass" if conclusive else "not checked",
    )
    rejects = [{"node": "node_conv", "reason": "weight 'w' also feeds another node"}]
    return PassRow(
        name=name,
        stage="simplify",
        exactness="rounding",
        seconds=0.012,
        rewrites=rewrites,
        rejects=rejects if name.startswith("fuse") else [],
        check=check,
    )


def accuracy_row(file: str, value: float) -> AccuracyRow:
    return AccuracyRow(
        file=file,
        runtime="onnxruntime 1.32.0",
        optimization_level="off",
        metric="top1",
        value=value,
        original=0.9925,
        drop_points=100 * (0.9925 - value),
        per_class={
            str(k): {"original": 0.99, "value": 0.99 - 0.004 * (k % 4 - 1), "samples": 80.0}
            for k in range(10)
        },
        mcnemar_p=0.62,
        agreement=0.9962,
        outputs=[OutputError(name="scores", max_abs=0.41, sqnr_db=33.1, cosine=0.9998)],
        samples=797,
        simulated=False,
    )


def latency_row() -> LatencyRow:
    return LatencyRow(
        file="model.onnxruntime.onnx",
        runtime="onnxruntime 1.32.0",
        threads=2,
        batch=16,
        warmup_runs=10,
        runs=400,
        original=Percentiles(p50_ms=2.31, p90_ms=2.52, p99_ms=3.1),
        optimized=Percentiles(p50_ms=1.02, p90_ms=1.13, p99_ms=1.4),
        speedup=Speedup(median=2.26, ci95=(2.21, 2.31)),
    )


def engine_rows() -> list[EngineRow]:
    slow = Fallback(
        node="node_up", wanted="int8", got="fp16", reason="no int8 kernel for ConvTranspose"
    )
    return [
        EngineRow(
            backend="onnxruntime",
            status="built",
            version="1.32.0",
            file="model.onnxruntime.onnx",
            sha256="a" * 64,
            bytes=130_000,
            achieved=Achieved(int8=9, fp32=1),
            runs_on="x86-64 CPUs with VNNI",
        ),
        EngineRow(
            backend="tensorrt_rtx",
            status="built",
            version="1.7.1.116",
            file="model.tensorrt_rtx.engine",
            sha256="b" * 64,
            bytes=390_000,
            build_s=4.2,
            targets=["sm80", "sm86", "sm89", "sm120"],
            achieved=Achieved(int8=8, fp16=1, fp32=1),
            fallbacks=[slow],
            launches=10,
            launches_before=21,
            runs_on="SM80, SM86, SM89 and SM120 with the TensorRT-RTX 1.7 runtime",
        ),
    ]


def good_report(**changes: object) -> Report:
    report = Report(
        schema_version=SCHEMA_VERSION,
        verdict="pass",
        reasons=[],
        model=ModelInfo(
            name="digits.onnx",
            sha256="c" * 64,
            bytes=458_743,
            opset=20,
            ir_version=10,
            nodes=24,
            parameters=112_972,
            inputs={"x": "float32[batch, 1, 8, 8]"},
            outputs={"scores": "float32[batch, 10]"},
        ),
        target=["sm80", "sm86", "sm89", "sm120"],
        profile=[
            Profile(
                input="x", min=[1, 1, 8, 8], opt=[8, 1, 8, 8], max=[16, 1, 8, 8], source="samples"
            )
        ],
        calibration=Calibration(
            source="digits.npz",
            samples=256,
            held_back=51,
            calibrator="auto",
            methods={"minmax": 4, "entropy": 2, "mse": 5},
            findings=[],
        ),
        passes=[
            pass_row("fuse.conv-batchnorm", 6, conclusive=6),
            pass_row("fold.constants", 0, conclusive=0),
        ],
        precision=[
            NodePrecision(
                node="node_conv2d",
                op_type="Conv",
                wanted="int8",
                reason="",
                got={"onnxruntime": "int8", "tensorrt_rtx": "int8"},
            ),
            NodePrecision(
                node="node_div",
                op_type="Div",
                wanted="fp32",
                reason="raw-feature arithmetic at the entry",
                got={"onnxruntime": "fp32", "tensorrt_rtx": "fp32"},
            ),
        ],
        accuracy=Accuracy(
            source="eval.npz",
            artifacts=[
                accuracy_row("model.onnx", 0.9912),
                accuracy_row("model.onnxruntime.onnx", 0.99),
            ],
        ),
        latency=Latency(
            artifacts=[
                latency_row(),
                LatencyRow(
                    file="model.tensorrt_rtx.engine",
                    runtime="tensorrt_rtx 1.7.1.116",
                    not_measured="no device",
                ),
            ]
        ),
        size=[
            SizeRow(file="model.onnx", bytes=131_000, ratio=131_000 / 458_743),
            SizeRow(file="model.onnxruntime.onnx", bytes=130_000, ratio=130_000 / 458_743),
            SizeRow(file="model.tensorrt_rtx.engine", bytes=390_000, ratio=390_000 / 458_743),
        ],
        resources=Resources(compile_s=9.4, peak_mib=512.0, stages={"simplify": 0.4, "measure": 3}),
        engines=engine_rows(),
        gates=[
            Gate(
                name="drop of top1",
                limit="1 points",
                value="0.25 points (95 % interval -0.40 to 0.90), 797 samples",
                passed=True,
                file="model.onnxruntime.onnx",
            )
        ],
        search=None,
        pruning=None,
        warnings=["input 'x' was built for batch 1 to 16"],
        environment={"optcc": "0.1.0", "python": "3.11.7", "cpu": "x86-64, 2 cores"},
        manifest_sha256="d" * 64,
        reproduce="optcc compile digits.onnx --precision int8",
    )
    return msgspec.structs.replace(report, **changes)


def random_report() -> Report:
    calibration = Calibration(
        source="random",
        samples=64,
        held_back=0,
        calibrator="auto",
        methods={"minmax": 7},
        findings=[Finding(code="random", message="ranges from noise", severity="red")],
    )
    return good_report(
        verdict="unverified", reasons=["calibrated on random data"], calibration=calibration
    )


def unlabelled_report() -> Report:
    row = msgspec.structs.replace(
        accuracy_row("model.onnx", 0.99),
        metric=None,
        value=None,
        original=None,
        drop_points=None,
        per_class=None,
        mcnemar_p=None,
    )
    return good_report(
        verdict="pass (agreement only)",
        reasons=["no labels"],
        accuracy=Accuracy(source="held-back calibration samples", artifacts=[row]),
    )


def bare_report() -> Report:
    """Nothing measured: fp32, no data, no backend."""
    return good_report(
        verdict="unverified",
        reasons=["no accuracy was measured"],
        calibration=None,
        passes=[],
        precision=[],
        accuracy=None,
        latency=Latency(artifacts=[]),
        size=[],
        engines=[
            EngineRow(backend="tensorrt_rtx", status="failed", reason="no parser", node="node_x")
        ],
        gates=[],
        profile=[],
        warnings=[],
        target=[],
    )
