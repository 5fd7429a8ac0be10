"""Why nodes were changed or left alone, and its words on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field

from optcc.report.wording import count

__all__ = [
    "EXPLANATION_VERSION",
    "Change",
    "Explanation",
    "HeavyNode",
    "LeftAlone",
    "PassExplanation",
    "render_explanation",
]

EXPLANATION_VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One rewrite that stands.

    Attributes:
        merged: Nodes that it took away, as far as they are known.
        into: Nodes that stand in their place.
    """

    node: str
    what: str
    merged: tuple[str, ...] = ()
    into: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone:
    """One near miss: a node that a pass would have changed, but for the reason."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassExplanation:
    """What one pass did and what it left, all its stages together."""

    name: str
    rewrites: list[Change] = field(default_factory=list)
    left_alone: list[LeftAlone] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyNode:
    """What a heavy node is planned to run in.

    Attributes:
        reason: Why it is not narrow; empty when it is.
    """

    node: str
    op_type: str
    wanted: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of `optcc explain`.

    Attributes:
        source: Base name of the model file or output folder.
        precision: Whose stages were run.
        node: The node that was asked for; empty for all.
        stages: That are covered.
        passes: In the order they ran.
        heavy: Per heavy node what it is planned to run in; empty without a plan.
        notes: Sentences about what was asked for.
    """

    schema_version: str = EXPLANATION_VERSION
    source: str
    precision: str
    node: str = ""
    stages: list[str] = field(default_factory=list)
    passes: list[PassExplanation] = field(default_factory=list)
    heavy: list[HeavyNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def render_explanation(found: Explanation) -> str:
    """Return the passes, one block each, then the precision of heavy nodes, then the notes."""
    blocks = [_pass_lines(p) for p in found.passes]
    if found.heavy:
        narrow = sum(not h.reason for h in found.heavy)
        head = f"{found.precision}: {narrow} of {count(len(found.heavy), 'heavy node')}"
        blocks.append([head, *(f"  {_heavy_line(h)}" for h in found.heavy)])
    blocks += [[note] for note in found.notes]
    return "\n".join(line for block in blocks for line in block) + "\n"


def _pass_lines(one: PassExplanation) -> list[str]:
    left = f", {len(one.left_alone)} left alone" if one.left_alone else ""
    return [
        f"{one.name}: {count(len(one.rewrites), 'rewrite')}{left}",
        *(f"  {c.node}: {c.what}" for c in one.rewrites),
        *(f"  left alone: {m.node}: {m.reason}" for m in one.left_alone),
    ]


def _heavy_line(heavy: HeavyNode) -> str:
    text = f"{heavy.node} ({heavy.op_type}): {heavy.wanted}"
    return f"{text}, {heavy.reason}" if heavy.reason else text
