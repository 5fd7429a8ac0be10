"""Check a finished output folder: its files, its models, its engines, its numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from optcc.artifacts.leftovers import remove_leftovers
from optcc.artifacts.manifest import read_manifest, verify_folder
from optcc.backends.engine_file import inspect_engine
from optcc.calibrate.dataset import Dataset
from optcc.driver.facts import model_info
from optcc.driver.numbers import Numbers
from optcc.driver.recorded import choose_inputs, find_original, recorded_option
from optcc.driver.reports import load_report
from optcc.driver.work import CPU_MODEL, MODEL
from optcc.errors import ConfigError, OptccError
from optcc.frontends.onnx_file import LoadedModel, load
from optcc.graph.io import check
from optcc.graph.lint import lint
from optcc.progress import Progress, Silent
from optcc.report.schema import EngineRow, Report
from optcc.report.verification import CheckName, CheckOutcome, FolderCheck, FolderVerification

__all__ = ["verify_output"]


def verify_output(
    folder: Path,
    *,
    model: Path | None = None,
    inputs: str | None = None,
    shapes: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FolderVerification:
    """Check that OUT is what a compile wrote, and that its models still give its numbers.

    What a killed run left beside OUT or in it is removed first; a folder that was being replaced
    is restored.

    Args:
        folder: OUT.
        model: The original; else it is looked for by name and sha256 beside OUT and in the
            working folder.
        inputs: As for `--calib`; else the recorded samples where they are found likewise, else
            seeded inputs.
        shapes: Sizes of dynamic inputs, as for `optcc compile`.
        seed: Of seeded inputs.
        progress: Receives what goes on.

    Raises:
        ConfigError: `folder` is no output folder, or an option does not fit it.
        UnsupportedModelError: `model` is malformed.
    """
    made = _Folder(folder, progress or Silent())
    original = find_original(folder, made.manifest, model)
    made.check_files()
    made.check_models()
    made.check_engines()
    data = made.check_numbers(original, inputs, shapes, seed)
    made.say_what_is_left()
    return FolderVerification(
        folder=folder.resolve().name,
        fine=all(c.outcome != "failed" for c in made.checks),
        original=original.name if original is not None else "",
        inputs=data.source if data is not None else "",
        checks=made.checks,
    )


class _Folder:
    """One folder under examination; the checks are in the order they were made."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self.checks: list[FolderCheck] = []
        self.models: dict[str, LoadedModel] = {}
        removed = remove_leftovers(folder)
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise ConfigError(f"{folder} {what}", hint="give the output folder of `optcc compile`")
        manifest = read_manifest(folder)
        if manifest is None:
            raise ConfigError(
                f"{folder} holds no manifest of optcc",
                hint="give the output folder of `optcc compile`, or two models to compare",
            )
        self.manifest: dict[str, Any] = manifest
        self.report = self._load_report()
        if removed:
            text = f"removed or restored what a killed run left: {', '.join(removed)}"
            self._add("leftovers", "", "ok", text)

    def _load_report(self) -> Report | None:
        try:
            return load_report(self.folder)
        except ConfigError as error:
            self._add("report", "report.json", "failed", f"report.json: {error.what}")
            return None

    def _add(self, name: CheckName, file: str, outcome: CheckOutcome, text: str) -> None:
        self.checks.append(FolderCheck(name=name, file=file, outcome=outcome, text=text))

    def _listed(self, *suffixes: str) -> list[str]:
        """Return the files of the manifest that are there, by suffix."""
        names = sorted(n for n in self.manifest["files"] if n.endswith(suffixes))
        inside = [n for n in names if Path(n).name == n]
        return [n for n in inside if (self.folder / n).is_file()]

    def check_files(self) -> None:
        """Compare all files with the manifest, and the manifest with the report."""
        self.progress.stage("files")
        problems = verify_folder(self.folder)
        for problem in problems:
            self._add("files", problem.partition(" ")[0], "failed", problem)
        if not problems:
            count = len(self.manifest["files"])
            text = f"{count} files as the manifest records them, none missing, none more"
            self._add("files", "", "ok", f"{text}; report.json belongs to the manifest")

    def check_models(self) -> None:
        """Load each model; look at its structure, operators, inputs and outputs."""
        self.progress.stage("models")
        for file in self._listed(".onnx"):
            self._guarded("model", file, self._check_model)

    def _guarded(self, name: CheckName, file: str, action: Callable[[str], list[str]]) -> None:
        try:
            problems = action(file)
        except OptccError as error:
            problems = [error.what]
        for problem in problems:
            self._add(name, file, "failed", f"{file}: {problem}")

    def _check_model(self, file: str) -> list[str]:
        loaded = load(self.folder / file)
        problems = [*lint(loaded.model, loaded.signature), *check(loaded.model)]
        info, report = model_info(loaded), self.report
        if report is not None:
            sides = (
                ("inputs", info.inputs, report.model.inputs),
                ("outputs", info.outputs, report.model.outputs),
            )
            problems += [f"its {s} are {a}, the original's {b}" for s, a, b in sides if a != b]
        if not problems:
            self.models[file] = loaded
            same = "its inputs and outputs are the original's" if report is not None else "sound"
            self._add("model", file, "ok", f"{file} loads, is well formed, {same}")
        return problems

    def check_engines(self) -> None:
        """Compare each engine's header and size with what the report says of it."""
        for file in self._listed(".engine"):
            self._guarded("engine", file, self._check_engine)

    def _check_engine(self, file: str) -> list[str]:
        info = inspect_engine(self.folder / file)
        header, size = info.header, (self.folder / file).stat().st_size
        rows = {e.file: e for e in self.report.engines} if self.report is not None else {}
        problems = []
        if header.declared_bytes is not None and header.declared_bytes != size:
            problems.append(f"its header declares {header.declared_bytes} bytes, it has {size}")
        if file in rows:
            problems += _engine_problems(rows[file], header.backend, size, header.targets)
        elif self.report is not None:
            problems.append("the report knows no such engine")
        if not problems:
            text = f"{file} is a {header.backend} engine of the recorded size; it was not run"
            self._add("engine", file, "ok", text)
        return problems

    def check_numbers(
        self, original: LoadedModel | None, inputs: str | None, shapes: str | None, seed: int
    ) -> Dataset | None:
        """Run the models and compare."""
        models = {f: m for f, m in self.models.items() if f in (MODEL, CPU_MODEL)}
        reference = original or models.get(MODEL) or models.get(CPU_MODEL)
        if reference is None:
            self._add("numbers", "", "not checked", "numbers: there is no model that could be run")
            return None
        self.progress.stage("numbers")
        data, kind = choose_inputs(self.folder, self.manifest, reference, inputs, shapes, seed)
        if data is None:
            text = "numbers: no inputs could be made up that the model runs on: give --inputs FILE"
            self._add("numbers", "", "not checked", text)
            return None
        numbers = Numbers(
            precision=str(recorded_option(self.manifest, "precision")),
            report=self.report,
            folder=self.folder,
            original=original,
            models=models,
            data=data,
            kind=kind,
            seed=seed,
        )
        self.checks += numbers.run()
        return data

    def say_what_is_left(self) -> None:
        """Name what no check covers."""
        self._add(
            "report",
            "report.json",
            "not checked",
            "report.json, report.html, report.md: no sha256 of them is recorded",
        )


def _engine_problems(
    row: EngineRow, backend: str, size: int, targets: tuple[str, ...]
) -> list[str]:
    problems = []
    if backend != row.backend:
        problems.append(f"it is an engine of {backend}, the report says {row.backend}")
    if size != row.bytes:
        problems.append(f"it has {size} bytes, the report says {row.bytes}")
    if targets and set(targets) != set(row.targets):
        problems.append(f"it is for {', '.join(targets)}, the report says {', '.join(row.targets)}")
    return problems
