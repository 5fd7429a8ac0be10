"""Builds engines with `tensorrt_rtx` or `tensorrt`, in a child process, and reads them back."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from optcc.backends.child import ChildEnd, Event, run_child
from optcc.backends.contract import Availability, BuildJob, BuildOutcome, BuildStatus
from optcc.backends.engine_file import read_header
from optcc.backends.trt_achieved import achieved_precision
from optcc.backends.trt_errors import Failure, explain
from optcc.backends.trt_plan import read_plan
from optcc.errors import ConfigError, WriteError
from optcc.progress import Progress
from optcc.targets.catalog import default_targets, find_target, targets_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["TrtBackend"]

_WORKER = "optcc.backends.trt_worker"


class TrtBackend:
    """What both TensorRT backends share.

    Args:
        name: Of the backend and of the Python module.
        distributions: Names under which the module may be installed, for its version.
        install_hint: How to get it.
    """

    builds_file = True

    def __init__(self, name: str, distributions: Sequence[str], install_hint: str) -> None:
        self.name = name
        self._distributions = tuple(distributions)
        self._install_hint = install_hint

    def availability(self) -> Availability:
        """Say whether the module is installed, without importing it."""
        if importlib.util.find_spec(self.name) is None:
            return Availability(
                ok=False, reason=f"{self.name} is not installed", hint=self._install_hint
            )
        return Availability(ok=True, version=self._installed_version())

    def probe(self) -> Availability:
        """Import the module in a child process and say whether that works."""
        found = self.availability()
        if not found.ok:
            return found
        talk = _Talk()
        job = {"module": self.name, "probe": True, "out": os.devnull}
        end = run_child(_WORKER, job, talk.hear, cwd=Path.cwd())
        if talk.version:
            return Availability(ok=True, version=talk.version)
        reason = _first(talk.failed.get("log", ())) or _last_line(end.printed)
        return Availability(ok=False, version=found.version, reason=reason, hint=self._install_hint)

    def targets(self, job: BuildJob) -> tuple[str, ...]:
        """Return the targets to build for: the job's, or the defaults.

        Raises:
            ConfigError: This backend cannot build for one of them.
        """
        for name in job.targets:
            if self.name not in find_target(name).backends:
                raise ConfigError(
                    f"{self.name} cannot build for target {name!r}",
                    hint=f"it builds for {', '.join(targets_of(self.name))}",
                )
        return job.targets or default_targets(self.name)

    def build(self, job: BuildJob, progress: Progress) -> BuildOutcome:
        """Build `job.out` and read back what was achieved; see the `Backend` protocol."""
        found, targets = self.availability(), self.targets(job)
        if not found.ok:
            return BuildOutcome(
                status=BuildStatus.SKIPPED, reason=found.reason, hint=found.hint, targets=targets
            )
        graph = job.graph if job.graph is not None else _read_graph(job.model)
        partial = job.out.with_name(job.out.name + ".partial")
        talk = _Talk(progress)
        progress.stage(f"building the {self.name} engine")
        try:
            end = self._run(job, partial, targets, talk)
            if not talk.built:
                return self._failed(talk, end, graph, targets)
            outcome = self._read_back(job, partial, talk, end, graph)
            os.replace(partial, job.out)
            return outcome
        finally:
            partial.unlink(missing_ok=True)

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say where the engine runs."""
        return f"{', '.join(outcome.targets)} with {self.name} {outcome.version}"

    def _run(self, job: BuildJob, partial: Path, targets: Sequence[str], talk: _Talk) -> ChildEnd:
        model = job.model.resolve()  # external data is looked for beside the real file
        request = {
            "module": self.name,
            "probe": False,
            "model": model.name,
            "out": _relative(partial.parent.resolve() / partial.name, model.parent),
            "targets": list(targets),
            "profile": [
                {"name": i.name, "min": list(i.min), "opt": list(i.opt), "max": list(i.max)}
                for i in job.profile.inputs
            ],
        }
        return run_child(_WORKER, request, talk.hear, cwd=model.parent, on_tick=talk.tick)

    def _failed(
        self, talk: _Talk, end: ChildEnd, graph: ir.Model, targets: tuple[str, ...]
    ) -> BuildOutcome:
        if talk.failed.get("stage") == "write":
            raise WriteError(
                f"the engine cannot be written: {_first(talk.failed['log'])}",
                hint="free some space, or write elsewhere: -o OUT",
            )
        failure = (
            explain(talk.failed, graph, [n.name or "" for n in graph.graph.all_nodes()])
            if talk.failed
            else _crash(end)
        )
        return BuildOutcome(
            status=BuildStatus.FAILED,
            version=talk.version,
            targets=targets,
            reason=failure.reason,
            node=failure.node,
            hint=failure.hint,
            warnings=tuple(talk.warnings),
        )

    def _read_back(
        self, job: BuildJob, engine: Path, talk: _Talk, end: ChildEnd, graph: ir.Model
    ) -> BuildOutcome:
        plan, header = read_plan(engine), read_header(engine)
        warnings = list(talk.warnings)
        if self.name == "tensorrt_rtx" and not end.fixed_layout:
            warnings.append(
                "the engine's bytes may differ between builds: this system does not let a "
                "process switch address randomization off"
            )
        return BuildOutcome(
            status=BuildStatus.BUILT,
            file=job.out,
            sha256=str(talk.built["sha256"]),
            bytes=int(talk.built["bytes"]),
            build_s=float(talk.built["build_s"]),
            version=talk.version,
            targets=header.targets or self.targets(job),
            nodes=achieved_precision(plan, graph, job.wanted),
            launches=len(plan.kernels()) if plan.launches else None,
            warnings=tuple(warnings),
        )

    def _installed_version(self) -> str:
        for name in self._distributions:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return ""


@dataclass(slots=True)
class _Talk:
    """What the child said so far."""

    progress: Progress | None = None
    version: str = ""
    built: Event = field(default_factory=dict)
    failed: Event = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    done: int = 0

    def hear(self, event: Event) -> None:
        """Take one event."""
        match event["event"]:
            case "loaded":
                self.version = str(event["version"])
            case "built":
                self.built = event
            case "failed":
                self.failed = event
            case "warning":
                self.warnings.append(str(event["text"]))
            case "step":
                self.done = int(event["done"])
                self.tick()

    def tick(self) -> None:
        """Show that the build goes on; nobody knows for how long."""
        if self.progress is not None:
            self.progress.step(self.done, None)


def _read_graph(path: Path) -> ir.Model:
    from optcc.graph.io import read_model

    return read_model(path)


def _relative(path: Path, start: Path) -> str:
    try:
        return os.path.relpath(path, start)
    except ValueError:  # another drive
        return str(path)


def _crash(end: ChildEnd) -> Failure:
    how = f"signal {-end.status}" if end.status < 0 else f"exit status {end.status}"
    said = _last_line(end.printed)
    return Failure(f"the builder crashed ({how})" + (f": {said}" if said else ""))


def _first(lines: Sequence[object]) -> str:
    return str(lines[0]) if lines else ""


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:300]
