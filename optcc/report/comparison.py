"""Two models side by side, and their words on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optcc.report.wording import count, percent

__all__ = [
    "COMPARISON_VERSION",
    "Bisection",
    "LayerRow",
    "LayerTable",
    "ModelComparison",
    "OutputComparison",
    "aligned_table",
    "decibels",
    "error_text",
    "render_comparison",
]

COMPARISON_VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputComparison:
    """One output of the second model against the first.

    Attributes:
        max_rel: Largest error over the largest magnitude of the first model's output; None where
            they cannot be subtracted.
        sqnr_db: None when nothing differs.
        agreement: Share of positions with the same class; None when it holds no classes.
        allowed: For `max_rel`; None when the difference is not one of size.
        note: Why it is not equal, or why being equal proves little.
    """

    name: str
    max_abs: float
    max_rel: float | None
    sqnr_db: float | None
    cosine: float
    agreement: float | None
    allowed: float | None
    equal: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One inner value that both models have by name."""

    node: str
    op_type: str
    value: str
    max_rel: float | None
    sqnr_db: float | None
    equal: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """Inner values in the order of the first model.

    Attributes:
        compared: How many values both have.
        first: Where they part; None when they do not.
        rows: A few of them, spread over the graph, with those around `first`.
    """

    compared: int
    first: LayerRow | None
    rows: list[LayerRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """The rewrite after which the outputs leave the allowance when the pipeline is run again.

    Attributes:
        name: Of the pass; empty when no pass is to blame.
        lossy: Whether that pass changes the numbers on purpose.
        reproducer: Folder that was written; empty when none.
        note: What was found, in one sentence.
    """

    stage: str = ""
    name: str = ""
    node: str = ""
    lossy: bool = False
    reason: str = ""
    reproducer: str = ""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """The answer of `optcc verify A B`.

    Attributes:
        inputs: Where the inputs come from.
        allowance: "rounding", or the tolerance as text.
    """

    schema_version: str = COMPARISON_VERSION
    first: str
    second: str
    inputs: str
    samples: int
    allowance: str
    equal: bool
    outputs: list[OutputComparison]
    layers: LayerTable | None = None
    bisection: Bisection | None = None
    notes: list[str] = field(default_factory=list)


_HEAD = ("output", "max abs", "max rel", "allowed", "SQNR", "cosine", "agreement", "")
_LAYER_HEAD = ("node", "operator", "value", "max rel", "SQNR", "")


def render_comparison(found: ModelComparison) -> str:
    """Return a table of the outputs, the layers, the bisection, and the verdict last."""
    rows = [_output_row(o) for o in found.outputs]
    lines = aligned_table([_HEAD, *rows])
    lines += [f"{o.name}: {o.note}" for o in found.outputs if o.note]
    if found.layers is not None:
        lines += ["", *_layer_lines(found.layers)]
    if found.bisection is not None:
        lines += ["", f"bisection: {found.bisection.note}"]
        if found.bisection.reproducer:
            lines.append(f"reproducer: {found.bisection.reproducer}")
    lines += [f"note: {n}" for n in found.notes]
    apart = [o.name for o in found.outputs if not o.equal]
    verdict = "equal" if found.equal else f"not equal in {', '.join(apart)}"
    within = f"within {found.allowance}"
    lines += ["", f"{verdict}: {found.second} against {found.first}, {within}, on "]
    lines[-1] += f"{count(found.samples, 'sample')} ({found.inputs})"
    return "\n".join(lines) + "\n"


def _output_row(o: OutputComparison) -> tuple[str, ...]:
    return (
        o.name,
        f"{o.max_abs:.3g}",
        error_text(o.max_rel),
        error_text(o.allowed),
        decibels(o.sqnr_db),
        f"{o.cosine:.6f}",
        percent(o.agreement),
        "equal" if o.equal else "differs",
    )


def _layer_lines(table: LayerTable) -> list[str]:
    if not table.compared:
        return ["no inner value has the same name in both models"]
    head = f"{count(table.compared, 'inner value')} with the same name in both models"
    if table.first is None:
        return [f"{head}: they part nowhere"]
    first = table.first
    where = f"they part at node {first.node!r} ({first.op_type}), value {first.value!r}"
    rows = [
        (
            r.node,
            r.op_type,
            r.value,
            error_text(r.max_rel),
            decibels(r.sqnr_db),
            "equal" if r.equal else "differs",
        )
        for r in table.rows
    ]
    why = [f"{first.value}: {first.note}"] if first.note else []
    return [f"{head}: {where}", *why, *aligned_table([_LAYER_HEAD, *rows])]


def decibels(level: float | None) -> str:
    """Return a signal to noise ratio; None is no noise at all."""
    return "exact" if level is None else f"{level:.1f} dB"


def error_text(error: float | None) -> str:
    """Return a relative error; a dash where there is none to speak of."""
    return "-" if error is None else f"{error:.2g}"


def aligned_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of one width."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    cells = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in cells]
