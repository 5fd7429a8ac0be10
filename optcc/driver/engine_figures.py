"""Run the built engines where a device allows it; elsewhere say why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from optcc.backends.device import find_cuda_device
from optcc.backends.engine_run import EngineRun, can_run, run_engine
from optcc.config.shapes import ShapeProfile
from optcc.driver.work import MODEL, Work
from optcc.errors import BackendError
from optcc.measure.accuracy import AccuracyFigures, evaluate_all
from optcc.measure.figures import SampleBatch, Samples
from optcc.passkit.contract import Feed
from optcc.report.schema import EngineRow, LatencyRow, Percentiles
from optcc.report.wording import count
from optcc.runtime.session import Session
from optcc.verify.reference import open_model

__all__ = ["ENGINE_SUFFIX", "Fitting", "fits", "measure_engines"]

ENGINE_SUFFIX = ".engine"

_SECONDS = 1.5


def measure_engines(work: Work, samples: Samples, singles: Sequence[Feed]) -> list[LatencyRow]:
    """Run every engine that can run here; its accuracy goes into `work`.

    The original runs on the CPU, which is no fair partner for a GPU: the rows state the engine's
    own latency and no speed-up.

    Args:
        work: Has the engines; gets their accuracy by file.
        samples: What accuracy is taken on.
        singles: Feeds to time where the engine was built for them.
    """
    engines = [e for e in work.engines if e.file.endswith(ENGINE_SUFFIX)]
    return [_measured(work, engine, samples, singles) for engine in engines]


def _measured(
    work: Work, engine: EngineRow, samples: Samples, singles: Sequence[Feed]
) -> LatencyRow:
    if reason := can_run(engine.targets):
        return LatencyRow(file=engine.file, runtime=engine.backend, not_measured=reason)
    fitting = Fitting(samples, work.data.profile)
    timed = [feed for feed in singles if fits(feed, work.data.profile)]
    timed = timed or [batch.feed for batch in fitting.first()]
    try:
        run = run_engine(
            work.folder.stage / engine.file,
            engine.sha256,
            engine.backend,
            (batch.feed for batch in fitting.batches()),
            _SECONDS,
            timed=timed,
        )
        work.accuracy[engine.file] = _compared(work, run, fitting)
    except BackendError as error:
        work.warn(f"{engine.file} was built and could not be run: {error.what}")
        return LatencyRow(file=engine.file, runtime=engine.backend, not_measured=error.what)
    return _row(engine, run, timed)


def _compared(work: Work, run: EngineRun, samples: Fitting) -> AccuracyFigures:
    """Compare with the original, as every artifact is, and with the model it was built from."""
    metric = work.metric or work.request.metric
    figures = evaluate_all(
        Session(work.original), {"engine": _Replay(run.outputs)}, samples, metric
    )["engine"]
    notes = [figures.note, samples.left_out(), _against_model(work, run, samples)]
    return replace(figures, note="; ".join(note for note in notes if note))


def _against_model(work: Work, run: EngineRun, samples: Fitting) -> str:
    artifact = work.artifact(MODEL)
    if artifact is None:
        return ""
    with ExitStack() as stack:
        session = stack.enter_context(open_model(artifact.judged))
        figures = evaluate_all(session, {"engine": _Replay(run.outputs)}, samples)["engine"]
    worst = min((o.sqnr_db for o in figures.outputs if o.sqnr_db is not None), default=None)
    near = "equal outputs" if worst is None else f"SQNR at least {worst:.1f} dB"
    if figures.agreement is not None:
        near += f", same class on {100 * figures.agreement:.2f} %"
    return f"against {MODEL} on the CPU: {near}"


def _row(engine: EngineRow, run: EngineRun, timed: Sequence[Feed]) -> LatencyRow:
    device = find_cuda_device()
    return LatencyRow(
        file=engine.file,
        runtime=engine.backend,
        device=f"{device.name} ({device.target})" if device is not None else "",
        batch=next((len(a) for a in timed[0].values() if a.ndim), 1),
        warmup_runs=run.warmup_runs,
        runs=run.runs,
        optimized=Percentiles(p50_ms=run.p50_ms, p90_ms=run.p90_ms, p99_ms=run.p99_ms),
    )


def fits(feed: Feed, profile: ShapeProfile) -> bool:
    """Whether an engine that was built for the profile takes the feed."""
    return all(
        len(feed[i.name].shape) == len(i.min)
        and all(
            least <= dim <= most
            for least, dim, most in zip(i.min, feed[i.name].shape, i.max, strict=True)
        )
        for i in profile.inputs
        if i.name in feed
    )


@dataclass(slots=True)
class Fitting:
    """The samples that an engine was built for; their number is known after they were read."""

    samples: Samples
    profile: ShapeProfile
    skipped: int = 0

    @property
    def labels(self) -> np.ndarray | None:
        """Labels of all samples, or None."""
        return self.samples.labels

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the batches whose shapes fit, in order."""
        self.skipped = 0
        for batch in self.samples.batches():
            if fits(batch.feed, self.profile):
                yield batch
            else:
                self.skipped += batch.count

    def first(self) -> Iterable[SampleBatch]:
        """Return the first batch that fits, if there is one."""
        return [batch for batch, _ in zip(self.batches(), range(1), strict=False)]

    def left_out(self) -> str:
        """Say how many samples did not fit; empty when all of them did."""
        if not self.skipped:
            return ""
        return f"the engine was not built for the shapes of {count(self.skipped, 'sample')} more"


class _Replay:
    """Gives outputs that were computed before, in order."""

    def __init__(self, outputs: Sequence[Feed]) -> None:
        self._left = iter(outputs)

    def run(self, feeds: Feed, /) -> Feed:
        return next(self._left)
