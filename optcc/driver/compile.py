"""One compile from file to folder: the steps in order, and what happens when one fails."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from optcc.artifacts.manifest import MANIFEST_NAME
from optcc.artifacts.output_folder import OutputFolder
from optcc.backends.contract import Backend
from optcc.config.request import CompileRequest
from optcc.driver.assemble import assemble
from optcc.driver.data import choose_precision, gather_data
from optcc.driver.emit import emit
from optcc.driver.engines import build_engines, choose_backends
from optcc.driver.judge import find_samples, measure
from optcc.driver.optimize import optimize
from optcc.driver.original import original_file
from optcc.driver.planning import chosen, planned
from optcc.driver.provenance import manifest_of
from optcc.driver.work import Work
from optcc.errors import BackendError, ExitCode, VerificationError
from optcc.frontends.onnx_file import load
from optcc.frontends.preprocessing import with_preprocessing
from optcc.measure.resources import PeakMemory, StageTimers
from optcc.progress import Progress
from optcc.report.codec import encode
from optcc.report.render_html import render_html
from optcc.report.render_markdown import render_markdown
from optcc.report.schema import Report
from optcc.report.verdict import exit_code_of

__all__ = ["Outcome", "compile_model"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a compile that came to its end leaves.

    Attributes:
        folder: OUT, or OUT.failed when the verdict forbids to write OUT.
        exit_code: As documented; 0 or 4.
    """

    report: Report
    folder: Path
    exit_code: ExitCode


def compile_model(request: CompileRequest, progress: Progress) -> Outcome:
    """Optimize a model; write models, engines and a report into the output folder.

    Raises:
        ConfigError: Options, data or an extra are wrong or missing.
        UnsupportedModelError: The model is malformed, unsafe or not supported.
        VerificationError: A pass broke its promise; OUT.failed holds the report.
        BackendError: A backend that the user named failed, or any under `--strict`.
        WriteError: The output cannot be written.
    """
    backends = choose_backends(request.backends)
    folder = OutputFolder(request.out_folder, force=request.force, inputs=_inputs(request))
    engines = any(b.builds_file for b in backends)
    with (
        PeakMemory() as memory,
        folder,
        _prepared(request, progress, folder, memory, engines) as work,
    ):
        for note in folder.notes:
            work.warn(note)
        try:
            _work_through(work, backends)
        except VerificationError as error:
            raise _explained(work, error) from error
        return _finish(work)


def _inputs(request: CompileRequest) -> list[Path]:
    given = [request.model, request.ranges, request.recipe]
    given += [Path(t) for t in (request.calib, request.evaluation) if t and Path(t).exists()]
    return [p for p in given if p is not None]


@contextmanager
def _prepared(
    request: CompileRequest,
    progress: Progress,
    folder: OutputFolder,
    memory: PeakMemory,
    engines: bool,
) -> Iterator[Work]:
    """Load the model, settle the plan, and open the data."""
    timers = StageTimers()
    progress.stage("load")
    with timers.stage("load"):
        loaded = load(request.model, data_root=request.data_root)
        if request.preprocessing:
            loaded = with_preprocessing(loaded, request.preprocessing)
        precision, calib = choose_precision(request, progress)
        plan, registry = planned(precision, chosen(request))
        data = gather_data(request, loaded, precision, calib, sizes_matter=engines)
    with original_file(loaded) as original:
        yield Work(
            request=request,
            progress=progress,
            folder=folder,
            memory=memory,
            timers=timers,
            loaded=loaded,
            data=data,
            plan=plan,
            registry=registry,
            original=original,
        )


def _work_through(work: Work, backends: list[Backend]) -> None:
    find_samples(work)
    emit(work, optimize(work))
    build_engines(work, backends)
    measure(work)


def _explained(work: Work, error: VerificationError) -> VerificationError:
    """Leave the report of what was found beside OUT, and say where it is."""
    report = assemble(work, "", failure=error.what)
    _write_report(work.folder, report)
    failed = work.folder.fail()
    hint = f"{failed} holds the report" if failed is not None else None
    hints = "; ".join(h for h in (error.hint, hint) if h)
    return VerificationError(error.what, hint=hints or None, where=error.where)


def _finish(work: Work) -> Outcome:
    work.progress.stage("write")
    manifest = manifest_of(work)
    work.folder.write(MANIFEST_NAME, manifest)
    report = assemble(work, hashlib.sha256(manifest).hexdigest())
    code = exit_code_of(report, strict=work.request.strict)
    if code is ExitCode.BACKEND:
        raise _failed_backend(report)
    _write_report(work.folder, report)
    if code is ExitCode.DONE:
        return Outcome(report, work.folder.commit(), code)
    failed = work.folder.fail()
    return Outcome(report, failed or work.request.out_folder, code)


def _failed_backend(report: Report) -> BackendError:
    engine = next(e for e in report.engines if e.status == "failed")
    return BackendError(
        f"backend {engine.backend!r} failed: {engine.reason}",
        hint="leave out --strict to keep what was built without it",
        where=f"node {engine.node!r}" if engine.node else engine.backend,
    )


def _write_report(folder: OutputFolder, report: Report) -> None:
    folder.write("report.json", encode(report))
    folder.write("report.html", render_html(report).encode())
    folder.write("report.md", render_markdown(report).encode())
