"""Which chart shows which rows of the report."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup

from optcc.report.charts import Bar, Mark, Stack, bar_chart, stack_chart
from optcc.report.headline import worst_row
from optcc.report.schema import AccuracyRow, LatencyRow, Report
from optcc.report.wording import (
    achieved_counts,
    achieved_text,
    byte_size,
    metric_value,
    percent,
    ratio,
    signed_points,
    speedup,
)

__all__ = [
    "accuracy_chart",
    "class_drop",
    "latency_chart",
    "per_class_chart",
    "precision_chart",
    "size_chart",
]

_CLASSES_SHOWN = 20
_UNCHANGED = 0.005


def accuracy_chart(report: Report) -> Markup | None:
    """Draw drop per artifact against the limit; without labels the agreement."""
    rows = report.accuracy.artifacts if report.accuracy else []
    dropped = [row for row in rows if row.drop_points is not None]
    if dropped:
        limit = _limit(report)
        bars = [_drop_bar(row, limit) for row in dropped]
        return bar_chart("Accuracy drop in points", bars, limit)
    agreeing = [_agreement_bar(row) for row in rows if row.agreement is not None]
    return bar_chart("Agreement with the original", agreeing) if agreeing else None


def latency_chart(report: Report) -> Markup | None:
    """Draw p50 of original and artifact with a whisker to p90."""
    bars = [bar for row in report.latency.artifacts for bar in _latency_bars(row)]
    return bar_chart("Latency in milliseconds", bars) if bars else None


def precision_chart(report: Report) -> Markup | None:
    """Draw node counts by achieved precision, one stack per backend."""
    stacks = [
        Stack(row.backend, counts, achieved_text(row.achieved))
        for row in report.engines
        if (counts := achieved_counts(row.achieved))
    ]
    return stack_chart("Achieved precision", stacks) if stacks else None


def size_chart(report: Report) -> Markup | None:
    """Draw the bytes of every artifact under the original."""
    if not report.size:
        return None
    total = report.model.bytes
    original = Bar(
        label=f"original {report.model.name}", value=total, text=byte_size(total), kind="original"
    )
    others = [
        Bar(
            label=row.file,
            value=row.bytes,
            text=f"{byte_size(row.bytes)}, {ratio(row.ratio)}",
            kind="optimized",
        )
        for row in report.size
    ]
    return bar_chart("Size in bytes", [original, *others])


def per_class_chart(report: Report) -> Markup | None:
    """Draw the drop of each class of the worst artifact; None when no class changed."""
    row = worst_row(report)
    drops = [] if row is None else _class_drops(row)
    if not any(abs(drop) > _UNCHANGED for _, drop in drops):
        return None
    return bar_chart("Drop per class in points", list(map(_class_bar, drops)))


def class_drop(entry: dict[str, float]) -> float | None:
    """Return the drop of one class in points, from what its entry holds."""
    if "drop_points" in entry:
        return entry["drop_points"]
    if "original" in entry and "value" in entry:
        return 100 * (entry["original"] - entry["value"])
    return None


def _class_drops(row: AccuracyRow) -> list[tuple[str, float]]:
    found = {name: class_drop(entry) for name, entry in (row.per_class or {}).items()}
    known = [(name, drop) for name, drop in found.items() if drop is not None]
    ranked = sorted(known, key=lambda item: (-item[1], _natural(item[0])))
    if len(ranked) > _CLASSES_SHOWN:
        return ranked[:_CLASSES_SHOWN]
    return sorted(known, key=lambda item: _natural(item[0]))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name) if p]


def _class_bar(item: tuple[str, float]) -> Bar:
    name, drop = item
    kind = "loss" if drop > 0 else "gain"
    return Bar(label=f"class {name}", value=-drop, text=signed_points(drop), kind=kind)


def _drop_bar(row: AccuracyRow, limit: Mark | None) -> Bar:
    drop = row.drop_points or 0.0
    over = limit is not None and drop > limit.value
    before, after = (metric_value(row.metric, v) for v in (row.original, row.value))
    text = f"{signed_points(drop)} ({before} → {after})"
    return Bar(label=_row_label(row), value=drop, text=text, kind="over" if over else "within")


def _agreement_bar(row: AccuracyRow) -> Bar:
    value = row.agreement or 0.0
    return Bar(label=_row_label(row), value=value, text=percent(value), kind="optimized")


def _row_label(row: AccuracyRow) -> str:
    return f"{row.file} (simulated)" if row.simulated else row.file


def _latency_bars(row: LatencyRow) -> Iterator[Bar]:
    if row.original is None or row.optimized is None:
        return
    slow, fast = row.original, row.optimized
    yield Bar(
        label=f"original, {row.runtime}",
        value=slow.p50_ms,
        reach=slow.p90_ms,
        text=f"{slow.p50_ms:.3g} ms",
        kind="original",
        gap=True,
    )
    yield Bar(
        label=row.file,
        value=fast.p50_ms,
        reach=fast.p90_ms,
        text=f"{fast.p50_ms:.3g} ms, {speedup(row)}",
        kind="optimized",
    )


def _limit(report: Report) -> Mark | None:
    """Find the limit of the drop gate, whose text holds the figure."""
    for gate in report.gates:
        found = re.search(r"\d+(?:\.\d+)?", gate.limit)
        if "drop" in gate.name and found:
            return Mark(float(found.group()), f"limit {found.group()}")
    return None
