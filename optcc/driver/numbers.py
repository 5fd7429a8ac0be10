"""Run the models of OUT again and hold them to the figures in the report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optcc.calibrate.dataset import Dataset
from optcc.config.request import Precision
from optcc.driver.inputs import InputKind, observe_outputs
from optcc.driver.work import CPU_MODEL, MODEL
from optcc.errors import BackendError
from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.shapes import infer_shapes
from optcc.measure.accuracy import OutputFigures, evaluate
from optcc.passkit.simulation import simulate_narrow
from optcc.report.comparison import decibels
from optcc.report.schema import OutputError, Report
from optcc.report.verification import CheckOutcome, FolderCheck
from optcc.runtime.session import OptimizationLevel, Session
from optcc.verify.allowance import Allowance, compare_outputs
from optcc.verify.numeric import Outcome
from optcc.verify.reference import open_model

__all__ = ["MARGINS", "Margin", "Numbers"]


@dataclass(frozen=True, slots=True)
class Margin:
    """How far below the report's SQNR an output may be.

    Attributes:
        good_db: Up to this far below it is as it should be.
        bad_db: Further below than this it is wrong; what lies between proves neither. Never above
            0 dB, where the error is as large as the signal; None for 0 dB alone.
    """

    good_db: float
    bad_db: float | None


MARGINS: dict[InputKind, Margin] = {
    "recorded": Margin(6.0, 6.0),
    "given": Margin(10.0, 25.0),
    "seeded": Margin(25.0, None),
}
"""On the samples of the report only another processor makes a difference. Other inputs bring
another signal, and seeded ones are so unlike data that only gross faults can be told."""

_LEAST_GOOD_DB = 3.0
_EXACT_DB = 60.0


@dataclass(slots=True, kw_only=True)
class Numbers:
    """The checks of numbers.

    Attributes:
        original: None when it was not found.
        models: The models of OUT that could be loaded, by file.
        kind: What the inputs are; says how strict the limits can be.
    """

    precision: str
    report: Report | None
    folder: Path
    original: LoadedModel | None
    models: dict[str, LoadedModel]
    data: Dataset
    kind: InputKind
    seed: int = 0
    checks: list[FolderCheck] = field(default_factory=list)

    def run(self) -> list[FolderCheck]:
        """Compare every model with the original, else the two spellings with each other."""
        if self.original is not None:
            for file in self.models:
                self._against_original(file, self.original)
        elif set(self.models) == {MODEL, CPU_MODEL}:
            self._spellings()
        else:
            for file in self.models:
                self._alone(file)
        return self.checks

    def _lossy(self, file: str) -> bool:
        if self.precision == Precision.FP16.value:
            return file == MODEL
        return self.precision != Precision.FP32.value

    def _against_original(self, file: str, original: LoadedModel) -> None:
        try:
            if not self._lossy(file):
                self._rounding(file, original)
                return
            with open_model(original.model) as before, self._opened(file) as after:
                outputs = evaluate(before, after, self.data).outputs
        except BackendError as error:
            self._add(file, "failed", f"{file} does not run on these inputs: {error.what}")
            return
        limits = self._reported(file)
        for output in outputs:
            self._judge(file, output, limits.get(output.name), original.name)

    def _rounding(self, file: str, original: LoadedModel) -> None:
        with open_model(original.model) as before, open_model(self.models[file].model) as after:
            seen = observe_outputs(before, self.data)
            results = [after.run(f) for f in seen.probes]
        verdicts = compare_outputs(original.model, seen, results, Allowance(), self.seed)
        for name, verdict in verdicts.items():
            fine = verdict.outcome is not Outcome.BROKEN
            error = "" if verdict.max_error is None else f" (error {verdict.max_error:.2g})"
            said = f"equals {original.name} up to rounding{error}" if fine else verdict.reason
            more = f"; this proves little: {verdict.reason}" if fine and verdict.reason else ""
            self._add(file, "ok" if fine else "failed", f"{file}, output {name!r}: {said}{more}")

    def _spellings(self) -> None:
        try:
            with self._opened(MODEL) as one, self._opened(CPU_MODEL) as two:
                outputs = evaluate(one, two, self.data).outputs
        except BackendError as error:
            text = f"{MODEL} and {CPU_MODEL} do not run on these inputs: {error.what}"
            self._add(MODEL, "failed", text)
            return
        first, second = self._reported(MODEL), self._reported(CPU_MODEL)
        for output in outputs:
            reported = _joined_db(first.get(output.name), second.get(output.name))
            self._judge(CPU_MODEL, output, reported, MODEL)

    def _alone(self, file: str) -> None:
        try:
            with self._opened(file) as session:
                for feed in self.data:
                    session.run(feed)
        except BackendError as error:
            self._add(file, "failed", f"{file} does not run on these inputs: {error.what}")
            return
        why = "there is neither the original nor another model to compare with"
        self._add(file, "not checked", f"numbers of {file}: it runs, but {why}")

    @contextmanager
    def _opened(self, file: str) -> Iterator[Session]:
        """Open a model as the compile judged it."""
        if file == CPU_MODEL and self._lossy(file):
            yield Session(self.folder / file, level=OptimizationLevel.ALL)
            return
        model = self.models[file].model
        if self.precision == Precision.FP16.value and file == MODEL:
            infer_shapes(model)
            model = simulate_narrow(model)
        with open_model(model) as session:
            yield session

    def _reported(self, file: str) -> dict[str, float]:
        if self.report is None or self.report.accuracy is None:
            return {}
        rows = [r for r in self.report.accuracy.artifacts if r.file == file]
        return {o.name: _level(o) for row in rows for o in row.outputs}

    def _judge(self, file: str, found: OutputFigures, reported: float | None, other: str) -> None:
        who = f"{file}, output {found.name!r}"
        level = f"{decibels(found.sqnr_db)} against {other}"
        if found.broken or found.mismatched:
            what = f"{found.broken} values are finite in one model only"
            text = what if found.broken else "its shape differs"
            self._add(file, "failed", f"{who}: {text} (against {other})")
        elif found.sqnr_db is None:
            self._add(file, "ok", f"{who}: the same numbers as {other}")
        elif reported is None:
            self._add(file, "not checked", f"{who}: {level}, the report has no figure of it")
        elif self.kind == "out of range":
            text = "the inputs leave its calibrated ranges: give --inputs FILE with real samples"
            self._add(file, "not checked", f"{who}: {level}, {text}")
        else:
            self._hold(file, found.sqnr_db, reported, f"{who}: {level}")

    def _hold(self, file: str, level: float, reported: float, text: str) -> None:
        margin = MARGINS[self.kind]
        good = max(_LEAST_GOOD_DB, reported - margin.good_db)
        bad = 0.0 if margin.bad_db is None else max(0.0, reported - margin.bad_db)
        bad = min(bad, good)
        if level >= good:
            self._add(file, "ok", f"{text}, at least {good:.1f} dB is expected on these inputs")
        elif level < bad:
            self._add(file, "failed", f"{text}, at least {bad:.1f} dB is expected on these inputs")
        else:
            why = "which proves neither right nor wrong"
            more = "" if self.kind == "given" else ": give --inputs FILE with real samples"
            self._add(file, "not checked", f"{text} on these inputs, {why}{more}")

    def _add(self, file: str, outcome: CheckOutcome, text: str) -> None:
        self.checks.append(FolderCheck(name="numbers", file=file, outcome=outcome, text=text))


def _level(row: OutputError) -> float:
    return _EXACT_DB if row.sqnr_db is None else min(row.sqnr_db, _EXACT_DB)


def _joined_db(first: float | None, second: float | None) -> float | None:
    """Return what two models may differ by when each differs from a third: errors add up."""
    if first is None or second is None:
        return None
    return -20 * math.log10(10 ** (-first / 20) + 10 ** (-second / 20))
