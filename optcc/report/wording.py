"""Numbers as people read them; every renderer uses the same words."""

from __future__ import annotations

from optcc.report.schema import Achieved, LatencyRow

__all__ = [
    "PRECISIONS",
    "achieved_counts",
    "achieved_text",
    "byte_size",
    "count",
    "metric_value",
    "percent",
    "ratio",
    "seconds",
    "signed_points",
    "speedup",
]

PRECISIONS = ("int4", "int8", "fp8", "fp16", "bf16", "fp32", "unknown")
"""What a node can be found to run in, the narrowest first."""

_SHARES = ("top1", "top5", "f1")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_size(count: int) -> str:
    """Return `count` bytes in the largest unit that keeps it at 1 or more."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


def percent(share: float | None) -> str:
    """Return a share in 0..1 as a percentage; a dash when it was not measured."""
    return "-" if share is None else f"{100 * share:.2f} %"


def metric_value(metric: str | None, value: float | None) -> str:
    """Return a metric: shares as a percentage, everything else as it is."""
    if value is None or metric in _SHARES:
        return percent(value)
    return f"{value:.4g}"


def signed_points(drop: float | None) -> str:
    """Return a drop in points with its sign: a loss is negative."""
    if drop is None:
        return "-"
    return "0.00" if abs(drop) < 0.005 else f"{-drop:+.2f}"


def ratio(value: float) -> str:
    """Return a size ratio as a percentage of the original."""
    return f"{100 * value:.1f} %"


def count(number: int, what: str) -> str:
    """Return `1 thread`, `2 threads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def seconds(value: float) -> str:
    """Return a duration."""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def speedup(row: LatencyRow) -> str:
    """Return the speed-up with its interval, or why there is none."""
    if row.speedup is None and row.optimized is not None:
        return f"on {row.device}, not compared with a CPU"
    if row.speedup is None:
        return f"not measured ({row.not_measured})" if row.not_measured else "not measured"
    low, high = row.speedup.ci95
    return f"{row.speedup.median:.2f}x [{low:.2f}, {high:.2f}]"


def achieved_text(achieved: Achieved) -> str:
    """Return the counts that are not zero: `7 int8, 2 fp32`."""
    counts = achieved_counts(achieved)
    return ", ".join(f"{n} {name}" for name, n in counts) or "nothing read"


def achieved_counts(achieved: Achieved) -> list[tuple[str, int]]:
    """Return the precisions that occur, narrowest first."""
    return [(name, getattr(achieved, name)) for name in PRECISIONS if getattr(achieved, name)]
