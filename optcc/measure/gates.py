"""Whether an artifact is good enough, and whether the samples suffice to say so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optcc.measure.figures import AccuracyFigures, OutputFigures

__all__ = ["LEAST_AGREEMENT", "LEAST_SQNR_DB", "GateResult", "fewest_samples", "judge"]

LEAST_AGREEMENT = 0.98
"""Share of samples that must keep their class when there are no labels."""

LEAST_SQNR_DB = 20.0
"""Of every output that holds no classes when there are no labels."""

_FEWEST, _MOST_NEEDED = 30, 1000
_FEWEST_WITHOUT_LABELS = 8
_CLEARLY_BELOW_DB = 6.0
_DOUBT = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One limit and how it came out.

    Attributes:
        passed: None when the gate is off or the samples are too few.
        file: The artifact; empty when the gate is about all.
    """

    name: str
    limit: str
    value: str
    passed: bool | None
    file: str = ""


def judge(max_drop: float | None, rows: Sequence[tuple[str, AccuracyFigures]]) -> list[GateResult]:
    """Judge every artifact.

    With labels the drop of the metric counts; without, agreement for outputs that hold classes and
    SQNR for all others.

    Args:
        max_drop: Largest drop in points; None switches the gate off.
        rows: File and figures of each artifact.
    """
    if max_drop is None:
        return [GateResult(name="accuracy", limit="off", value="not judged", passed=None)]
    return [gate for file, row in rows for gate in _gates(max_drop, file, row)]


def fewest_samples(max_drop: float) -> int:
    """Return the number of samples below which one of them weighs more than the limit."""
    if max_drop <= 0:
        return _MOST_NEEDED
    return max(_FEWEST, min(_MOST_NEEDED, math.ceil(100 / max_drop)))


def _gates(max_drop: float, file: str, row: AccuracyFigures) -> Iterator[GateResult]:
    if row.drop_points is not None:
        yield _drop_gate(max_drop, file, row, row.drop_points)
        yield from _broken_gates(file, row)
        return
    for output in row.outputs:
        if output.agreement is not None and output.informative:
            yield _agreement_gate(file, row, output, output.agreement)
        else:
            yield _sqnr_gate(file, row, output)


def _drop_gate(max_drop: float, file: str, row: AccuracyFigures, drop: float) -> GateResult:
    interval = row.drop_ci95
    value = f"{drop:.2f} points"
    if interval is not None:
        value += f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
    enough = row.samples >= fewest_samples(max_drop)
    exceeds = drop > max_drop + 1e-9
    surely = exceeds and interval is not None and interval[0] > max_drop
    return GateResult(
        name=f"drop of {row.metric}",
        limit=f"{max_drop:g} point{'' if max_drop == 1 else 's'}",
        value=f"{value}, {row.samples} samples",
        passed=(not exceeds) if enough else (False if surely else None),
        file=file,
    )


def _broken_gates(file: str, row: AccuracyFigures) -> Iterator[GateResult]:
    for output in row.outputs:
        if output.broken:
            yield GateResult(
                name=f"finite values of {output.name}",
                limit="0 elements",
                value=f"{output.broken} elements are finite in one model only",
                passed=False,
                file=file,
            )


def _agreement_gate(
    file: str, row: AccuracyFigures, output: OutputFigures, agreement: float
) -> GateResult:
    reached = agreement >= LEAST_AGREEMENT
    passed: bool | None = reached
    if row.samples < round(1 / (1 - LEAST_AGREEMENT)):
        near = output.sqnr_db is None or output.sqnr_db >= LEAST_SQNR_DB
        sure = reached and near and row.samples >= _FEWEST_WITHOUT_LABELS
        passed = True if sure else (False if _surely_below(agreement, row.samples) else None)
    return GateResult(
        name=f"agreement of {output.name}",
        limit=f"at least {100 * LEAST_AGREEMENT:g} %",
        value=f"{100 * agreement:.2f} %, {row.samples} samples",
        passed=passed,
        file=file,
    )


def _sqnr_gate(file: str, row: AccuracyFigures, output: OutputFigures) -> GateResult:
    sqnr = math.inf if output.sqnr_db is None else output.sqnr_db
    passed: bool | None = sqnr >= LEAST_SQNR_DB
    if row.samples < _FEWEST_WITHOUT_LABELS and sqnr > LEAST_SQNR_DB - _CLEARLY_BELOW_DB:
        passed = None
    return GateResult(
        name=f"SQNR of {output.name}",
        limit=f"at least {LEAST_SQNR_DB:g} dB",
        value=("exact" if sqnr == math.inf else f"{sqnr:.1f} dB") + f", {row.samples} samples",
        passed=passed,
        file=file,
    )


def _surely_below(agreement: float, samples: int) -> bool:
    """Whether a model at the limit would hardly ever disagree this often."""
    differing, rate = round((1 - agreement) * samples), 1 - LEAST_AGREEMENT
    fewer = sum(
        math.comb(samples, k) * rate**k * (1 - rate) ** (samples - k) for k in range(differing)
    )
    return 1 - fewer < _DOUBT
