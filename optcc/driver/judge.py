"""Measure every emitted model against the original, and hold it to the gate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

from optcc.calibrate.dataset import Dataset, from_feeds
from optcc.config.request import CpuClass, Precision
from optcc.driver.engine_figures import measure_engines
from optcc.driver.work import CPU_MODEL, MODEL, Artifact, Work
from optcc.errors import BackendError, UnsupportedModelError, VerificationError
from optcc.graph.signature import Dim
from optcc.measure.accuracy import check_metric, evaluate_all
from optcc.measure.environment import environment
from optcc.measure.gates import judge
from optcc.measure.latency import LatencyFigures, compare_latency
from optcc.passkit.contract import Feed
from optcc.report.schema import LatencyRow, Percentiles, Speedup
from optcc.runtime.session import OptimizationLevel, Session
from optcc.verify.probes import make_probes
from optcc.verify.reference import open_model

__all__ = ["find_samples", "measure"]

_THREADS = 1
_LATENCY_FEEDS = 4
_RUNTIME = "onnxruntime"


def find_samples(work: Work) -> None:
    """Find samples to judge on and the metric, before the long work and the first change.

    Raises:
        UnsupportedModelError: The runtime cannot run the original, so nothing can be judged.
    """
    try:
        original = Session(work.original)
        work.samples = work.data.evaluation or _made_up_samples(work)
        if work.samples is not None:
            work.metric = check_metric(original, work.samples, work.request.metric)
    except BackendError as error:
        raise UnsupportedModelError(
            f"ONNX Runtime cannot run {work.loaded.name}: {error.what}",
            hint="optcc judges every result by running the original model",
        ) from error


def measure(work: Work) -> None:
    """Fill in accuracy, gates and latency.

    Raises:
        VerificationError: An artifact does not run where the original does.
    """
    samples = work.samples
    if samples is None:
        work.warn("the model runs on no input that could be made up: nothing was measured")
        return
    work.progress.stage("accuracy")
    with work.timers.stage("accuracy"):
        try:
            _accuracy(work, samples)
        except BackendError as error:
            raise VerificationError(
                f"an optimized model does not run where the original does: {error.what}"
            ) from error
    work.progress.stage("latency")
    with work.timers.stage("latency"):
        feeds = list(islice(_single(work, samples), _LATENCY_FEEDS))
        work.latency = [_latency(work, a, feeds) for a in work.artifacts]
        work.latency += measure_engines(work, samples, feeds)
    work.gates = judge(work.request.max_drop, list(work.accuracy.items()))
    _say_what_this_cpu_lacks(work)


def _made_up_samples(work: Work) -> Dataset | None:
    """Make seeded inputs where there is no data at all."""
    loaded, feeds = work.loaded, []
    for seed in range(8):
        feeds += make_probes(
            loaded.model, loaded.signature, work.data.profile, (), work.request.seed + 2 * seed
        )
    if not feeds:
        return None
    work.warn("no evaluation data: the artifacts are compared on seeded random inputs")
    return from_feeds(feeds, loaded.signature, "seeded inputs")


def _accuracy(work: Work, samples: Dataset) -> None:
    with ExitStack() as stack:
        sessions = {a.file: stack.enter_context(_opened(work, a)) for a in work.artifacts}
        work.accuracy = evaluate_all(
            Session(work.original),
            sessions,
            samples,
            work.metric,
            lambda done: work.progress.step(done, samples.samples),
        )


@contextmanager
def _opened(work: Work, artifact: Artifact) -> Iterator[Session]:
    """Open an artifact as it is judged: the CPU's own file as the CPU runs it, the rest plainly."""
    if artifact.level is OptimizationLevel.OFF:
        with open_model(artifact.judged) as session:
            yield session
    else:
        yield Session(work.folder.stage / artifact.file, level=artifact.level)


def _single(work: Work, samples: Dataset) -> Iterator[Feed]:
    """Cut feeds to one sample where the model leaves the batch free."""
    free = {s.name: s.dims for s in work.loaded.signature.inputs if _has_free_batch(s.dims)}
    for batch in samples.batches():
        for row in range(batch.count if free else 1):
            yield {n: a[row : row + 1] if n in free else a for n, a in batch.feed.items()}


def _has_free_batch(dims: tuple[Dim, ...] | None) -> bool:
    return bool(dims) and not isinstance((dims or (1,))[0], int)


def _latency(work: Work, artifact: Artifact, feeds: list[Feed]) -> LatencyRow:
    reason = _why_not_timed(work, artifact)
    if reason:
        return LatencyRow(file=artifact.file, runtime=_RUNTIME, not_measured=reason)
    try:
        figures = compare_latency(
            work.original,
            work.folder.stage / artifact.file,
            feeds,
            threads=_THREADS,
            seed=work.request.seed,
        )
    except BackendError as error:
        return LatencyRow(file=artifact.file, runtime=_RUNTIME, not_measured=error.what)
    return _latency_row(artifact.file, figures, _batch_of(feeds))


def _say_what_this_cpu_lacks(work: Work) -> None:
    """A figure of kernels that this processor does not have is no figure of the artifact."""
    if work.data.precision is not Precision.INT8 or work.request.cpu_class is not CpuClass.VNNI:
        return
    if not any("vnni" in f or "amx" in f for f in environment().get("cpu_flags", "").split()):
        work.warn(
            f"{CPU_MODEL} is made for processors with VNNI and was timed on one without: "
            "expect other speed-ups there, or compile with --cpu-class avx2 for this kind"
        )


def _why_not_timed(work: Work, artifact: Artifact) -> str:
    if artifact.file != MODEL or work.artifact(CPU_MODEL) is None:
        return ""
    if work.data.precision is Precision.FP16:
        return f"a CPU has no half precision; {CPU_MODEL} is its artifact"
    return f"spelled for TensorRT, no fast CPU kernels take it; {CPU_MODEL} is for the CPU"


def _batch_of(feeds: list[Feed]) -> int:
    first = next((a for a in feeds[0].values() if a.ndim), None)
    return len(first) if first is not None else 1


def _latency_row(file: str, figures: LatencyFigures, batch: int) -> LatencyRow:
    sides = [
        Percentiles(p50_ms=q.p50_ms, p90_ms=q.p90_ms, p99_ms=q.p99_ms)
        for q in (figures.original, figures.optimized)
    ]
    return LatencyRow(
        file=file,
        runtime=_RUNTIME,
        threads=figures.threads,
        batch=batch,
        warmup_runs=figures.warmup_runs,
        runs=figures.runs,
        original=sides[0],
        optimized=sides[1],
        speedup=Speedup(median=figures.speedup.median, ci95=figures.speedup.ci95),
    )
