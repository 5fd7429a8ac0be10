"""One word for a whole compile, and the sentences that led to it.

From the worst: `fail` a gate or a check failed; `unverified` nobody can vouch for the numbers;
`inconclusive` the numbers exist but are too few; `pass (agreement only)` no labels; `pass`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optcc.errors import ExitCode
from optcc.report.schema import (
    Accuracy,
    Calibration,
    EngineRow,
    Gate,
    NodePrecision,
    PassRow,
    Report,
    Verdict,
)

__all__ = ["INCONCLUSIVE_LIMIT", "Evidence", "decide", "exit_code_of", "is_switched_off"]

INCONCLUSIVE_LIMIT = 0.05
"""Share of the checks that may prove nothing before the verdict says so."""

_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm")
_ORDER: tuple[Verdict, ...] = ("fail", "unverified", "inconclusive", "pass (agreement only)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a verdict is drawn from: rows of the report, and what was asked for.

    Attributes:
        precision: Precision that the heavy layers were asked to run in: "int8", "fp16", "fp32".
        nodes: Wanted and achieved precision per node.
    """

    precision: str
    calibration: Calibration | None
    passes: Sequence[PassRow]
    nodes: Sequence[NodePrecision]
    accuracy: Accuracy | None
    engines: Sequence[EngineRow]
    gates: Sequence[Gate]


def decide(evidence: Evidence) -> tuple[Verdict, list[str]]:
    """Return the verdict and every reason against a plain `pass`, the gravest first."""
    found = [
        *(("fail", text) for text in _failures(evidence)),
        *(("unverified", text) for text in _doubts(evidence)),
        *(("inconclusive", text) for text in _too_little(evidence)),
        *(("pass (agreement only)", text) for text in _without_labels(evidence)),
    ]
    for verdict in _ORDER:
        if any(kind == verdict for kind, _ in found):
            return verdict, [text for _, text in found]
    return "pass", []


def exit_code_of(report: Report, *, strict: bool) -> ExitCode:
    """Return the documented exit code of a compile that came to its end."""
    if report.verdict == "fail":
        return ExitCode.VERIFICATION
    if strict and any(row.status == "failed" for row in report.engines):
        return ExitCode.BACKEND
    if strict and report.verdict != "pass":
        return ExitCode.VERIFICATION
    return ExitCode.DONE


def is_switched_off(gate: Gate) -> bool:
    """Return whether the user switched this gate off (`--max-drop none`)."""
    return gate.passed is None and gate.limit in ("none", "off")


def _failures(evidence: Evidence) -> Iterator[str]:
    for gate in evidence.gates:
        if gate.passed is False:
            yield f"{_of(gate)}: {gate.value}; the limit is {gate.limit}"
    for row in evidence.passes:
        if row.check.verdict == "fail":
            yield f"pass {row.name} broke its promise ({row.exactness})"
    if evidence.precision == "int8" and not any(n.wanted == "int8" for n in evidence.nodes):
        yield "not one node was quantized" + _first_refusal(evidence.nodes)


def _first_refusal(nodes: Sequence[NodePrecision]) -> str:
    """Name a heavy node that stays wide and why, as a start for whoever must act."""
    refused = [n for n in nodes if n.reason]
    heavy = [n for n in refused if n.op_type in _HEAVY]
    node = next(iter(heavy or refused), None)
    return f": {node.node!r} ({node.op_type}): {node.reason}" if node is not None else ""


def _doubts(evidence: Evidence) -> Iterator[str]:
    if evidence.calibration is not None:
        yield from _untrusted_ranges(evidence.calibration)
    for engine in evidence.engines:
        if engine.status == "failed":
            yield f"backend {engine.backend} failed: {engine.reason}"
    if any(is_switched_off(gate) for gate in evidence.gates):
        yield "the accuracy gate is switched off (--max-drop none)"
    elif not evidence.gates:
        yield "no accuracy was measured"
    yield from _unproven(evidence.passes)


def _untrusted_ranges(calibration: Calibration) -> Iterator[str]:
    if calibration.source == "random":
        yield "calibrated on random data: the ranges say nothing about real inputs"
        return
    for finding in calibration.findings:
        if finding.severity == "red":
            yield finding.message


def _unproven(passes: Sequence[PassRow]) -> Iterator[str]:
    unclear = sum(row.check.inconclusive for row in passes)
    total = unclear + sum(row.check.conclusive for row in passes)
    if total and unclear / total > INCONCLUSIVE_LIMIT:
        yield (
            f"{unclear} of {total} checks of rewrites proved nothing, "
            f"the limit is {INCONCLUSIVE_LIMIT:.0%}"
        )


def _too_little(evidence: Evidence) -> Iterator[str]:
    for gate in evidence.gates:
        if gate.passed is None and not is_switched_off(gate):
            yield f"{_of(gate)}: {gate.value}; too few samples to judge against {gate.limit}"


def _without_labels(evidence: Evidence) -> Iterator[str]:
    rows = evidence.accuracy.artifacts if evidence.accuracy else []
    if rows and all(row.value is None for row in rows):
        yield "no labels: the artifacts were compared with the original model, not with the truth"


def _of(gate: Gate) -> str:
    return f"{gate.name} in {gate.file}" if gate.file else gate.name
