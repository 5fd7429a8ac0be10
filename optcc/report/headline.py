"""The few facts that a person wants first, taken from the rows: worst accuracy, speed, engine."""

from __future__ import annotations

from dataclasses import dataclass

from optcc.report.schema import AccuracyRow, EngineRow, Finding, PassRow, Report
from optcc.report.wording import (
    PRECISIONS,
    achieved_counts,
    byte_size,
    count,
    metric_value,
    percent,
    ratio,
)

__all__ = ["Fact", "headline", "is_idle", "is_random", "not_run", "red_findings", "worst_row"]

_RANDOM = Finding(
    code="random-calibration",
    message="Calibrated on random data. The ranges say nothing about real inputs; do not deploy.",
    severity="red",
)

_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN", "Attention")
"""Where the time goes; what joins them in a kernel is not worth a headline."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One headline: what it is, the figure, and the small print."""

    label: str
    value: str
    note: str = ""


def headline(report: Report) -> list[Fact]:
    """Return the headline facts in reading order."""
    facts = [_accuracy(report), _speed(report), _size(report)]
    unrun = not_run(report)
    engines = (row for row in report.engines if row.file.endswith(".engine"))
    facts.extend(_engine(report, row, unrun.get(row.file)) for row in engines)
    return [fact for fact in facts if fact is not None]


def worst_row(report: Report) -> AccuracyRow | None:
    """Return the accuracy row that the verdict rests on: largest drop, else least agreement."""
    rows = report.accuracy.artifacts if report.accuracy else []
    return max(rows, key=_badness, default=None)


def is_random(report: Report) -> bool:
    """Return whether the ranges come from noise."""
    return report.calibration is not None and report.calibration.source == "random"


def red_findings(report: Report) -> list[Finding]:
    """Return what belongs into the red banner."""
    findings = report.calibration.findings if report.calibration else []
    found = [finding for finding in findings if finding.severity == "red"]
    return [_RANDOM] if is_random(report) and not found else found


def not_run(report: Report) -> dict[str, str]:
    """Return the engines that were built and never executed, each with the reason."""
    built = {row.file for row in report.engines if row.status == "built" and row.file}
    rows = report.latency.artifacts
    return {row.file: row.not_measured for row in rows if row.file in built and row.not_measured}


def is_idle(row: PassRow) -> bool:
    """Return whether the pass changed, refused and checked nothing."""
    return not row.rewrites and not row.rejects and row.check.verdict == "not checked"


def _badness(row: AccuracyRow) -> tuple[float, float, float]:
    noise = min((o.sqnr_db for o in row.outputs if o.sqnr_db is not None), default=float("inf"))
    return (row.drop_points or 0.0, 1 - (row.agreement or 0.0), -noise)


def _accuracy(report: Report) -> Fact | None:
    row = worst_row(report)
    if row is None:
        return None
    if row.drop_points is not None:
        lost = max(row.drop_points, 0.0)
        gained = f"{-row.drop_points:+.2f} points" if row.drop_points < -0.005 else ""
        value = gained or f"{lost:.2f} points"
        before = metric_value(row.metric, row.original)
        after = metric_value(row.metric, row.value)
        note = f"{before} -> {after}, worst artifact {row.file}"
        return Fact(f"{row.metric} {'change' if gained else 'drop'}", value, note)
    if row.agreement is not None:
        return Fact("agreement", percent(row.agreement), f"with the original, worst {row.file}")
    noise = min((o.sqnr_db for o in row.outputs if o.sqnr_db is not None), default=None)
    value = "exact" if noise is None else f"{noise:.1f} dB"
    return Fact("signal to noise", value, f"worst output of {row.file}")


def _speed(report: Report) -> Fact | None:
    timed = [(row.speedup, row) for row in report.latency.artifacts if row.speedup is not None]
    if not timed:
        return None
    speedup, best = max(timed, key=lambda pair: pair[0].median)
    low, high = speedup.ci95
    threads = count(best.threads, "thread") if best.threads else "default threads"
    note = f"{low:.2f} to {high:.2f} at 95 %; {best.runtime}, {threads}, batch {best.batch}"
    return Fact("speed-up", f"{speedup.median:.2f}x", note)


def _size(report: Report) -> Fact | None:
    row = next((r for r in report.size if r.file == "model.onnx"), None)
    if row is None:
        return None
    note = f"model.onnx {byte_size(row.bytes)}, original {byte_size(report.model.bytes)}"
    return Fact("size", ratio(row.ratio), note)


def _engine(report: Report, row: EngineRow, unrun: str | None) -> Fact:
    heavy = [n.got.get(row.backend, "") for n in report.precision if n.op_type in _HEAVY]
    counts = [(name, heavy.count(name)) for name in PRECISIONS if name in heavy]
    what = "heavy layers" if counts else "nodes"
    counts = counts or achieved_counts(row.achieved)
    total = sum(number for _, number in counts)
    value = f"{counts[0][1]} of {total} {what} {counts[0][0]}" if counts else "plan not read"
    run = f"not run ({unrun}); for " if unrun else ""
    where = row.runs_on or ", ".join(row.targets)
    note = f"{row.file}, {byte_size(row.bytes)}; {run}{where}"
    return Fact(f"engine for {row.backend}", value, note)
