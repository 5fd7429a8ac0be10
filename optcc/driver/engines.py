"""Build what the artifacts are made for, and read back what each node really runs in."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from optcc.backends.contract import Backend, BuildJob, BuildOutcome, BuildStatus
from optcc.backends.registry import backend_names, default_backends, load_backend
from optcc.driver.facts import engine_row
from optcc.driver.work import CPU_MODEL, MODEL, Work
from optcc.errors import BackendError, ConfigError

__all__ = ["build_engines", "choose_backends"]

_RUNS_ONNX = "onnxruntime"


def choose_backends(names: tuple[str, ...]) -> list[Backend]:
    """Make the backends that the user named, or the defaults.

    Raises:
        ConfigError: A name is not known.
        BackendError: A backend that the user named cannot be used here.
    """
    backends = [load_backend(name) for name in names or default_backends()]
    for backend in backends if names else ():
        availability = backend.availability()
        if not availability.ok:
            raise BackendError(
                f"backend {backend.name!r} cannot be used here: {availability.reason}",
                hint=availability.hint or None,
            )
    return backends


def build_engines(work: Work, backends: list[Backend]) -> None:
    """Build every backend's artifact from its spelling.

    Raises:
        BackendError: A backend that the user named fails.
    """
    _say_what_is_absent(work)
    for backend in backends:
        work.progress.stage(f"build {backend.name}")
        with work.timers.stage(f"build {backend.name}"):
            job = _job(work, backend)
            outcome = _build(work, backend, job)
            before = _launches_of_original(work, backend) if _is_built(outcome) else None
        work.outcomes[backend.name] = outcome
        runs_on = backend.runs_on(outcome) if _is_built(outcome) else ""
        work.engines.append(engine_row(backend.name, outcome, job.model, runs_on, before))
        for text in outcome.warnings:
            work.warn(f"{backend.name}: {text}")


def _say_what_is_absent(work: Work) -> None:
    if work.request.backends or "tensorrt_rtx" not in backend_names():
        return
    availability = load_backend("tensorrt_rtx").availability()
    if not availability.ok:
        work.warn(f"no TensorRT-RTX engine: {availability.reason}")


def _build(work: Work, backend: Backend, job: BuildJob) -> BuildOutcome:
    try:
        outcome = backend.build(job, work.progress)
    except BackendError as error:
        if work.request.backends:
            raise
        return BuildOutcome(status=BuildStatus.FAILED, reason=error.what, hint=error.hint or "")
    if outcome.status is BuildStatus.FAILED and work.request.backends:
        where = f"node {outcome.node!r}" if outcome.node else backend.name
        raise BackendError(
            f"backend {backend.name!r} failed: {outcome.reason}",
            hint=outcome.hint or None,
            where=where,
        )
    if outcome.status is BuildStatus.FAILED:
        at = f" at node {outcome.node!r}" if outcome.node else ""
        work.warn(f"backend {backend.name} failed{at}: {outcome.reason}")
    return outcome


def _job(work: Work, backend: Backend) -> BuildJob:
    artifact = work.artifact(CPU_MODEL) if backend.name == _RUNS_ONNX else None
    artifact = artifact or work.artifact(MODEL)
    if artifact is None:
        raise ConfigError("there is no model to build")
    return BuildJob(
        model=work.folder.stage / artifact.file,
        out=work.folder.stage / f"model.{backend.name}.engine",
        profile=work.data.profile,
        targets=work.request.targets,
        wanted=_wanted(work, backend),
        graph=artifact.graph,
    )


def _wanted(work: Work, backend: Backend) -> Mapping[str, str]:
    """Return what was planned; a CPU has no half precision, so nothing narrower is wanted there."""
    wanted = {d.node: d.wanted for d in work.decisions}
    if backend.name != _RUNS_ONNX:
        return wanted
    return {n: "fp32" if w == "fp16" else w for n, w in wanted.items()}


def _is_built(outcome: BuildOutcome) -> bool:
    return outcome.status is BuildStatus.BUILT


def _launches_of_original(work: Work, backend: Backend) -> int | None:
    """Count what the original model would launch, so that the passes' effect shows."""
    with tempfile.TemporaryDirectory(prefix="optcc-") as folder:
        job = BuildJob(
            model=work.original,
            out=Path(folder) / "original.engine",
            profile=work.data.profile,
            targets=work.request.targets,
        )
        try:
            outcome = backend.build(job, work.progress)
        except BackendError:
            return None
    return outcome.launches if _is_built(outcome) else None
