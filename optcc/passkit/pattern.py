"""Patterns as data: what a piece of graph must look like, written from the root to its inputs.

    op("BatchNormalization", op("Conv", any_("x"), const("w"), name="conv"), any_("gamma"), ...)

Names bind values (`any_`, `const`, `scalar`) and nodes (`op`); one name bound twice must meet the
same value. Two-input operators that commute are tried in both orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "COMMUTATIVE",
    "AnyValue",
    "Const",
    "Maybe",
    "OneOf",
    "Op",
    "Pattern",
    "Root",
    "Scalar",
    "any_",
    "const",
    "maybe",
    "one_of",
    "op",
    "scalar",
]

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
"""Operators whose two inputs may be swapped."""


@dataclass(frozen=True, slots=True)
class AnyValue:
    """Any value that is present."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Const:
    """A value that is always the same: an initializer or the output of a Constant node."""

    name: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant with one element.

    Attributes:
        number: The element, up to `tolerance`; None takes any.
        tolerance: Relative to `number`; absolute where `number` is 0.
    """

    number: float | None
    name: str | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional input: absent, or as the inner pattern says."""

    pattern: Pattern


@dataclass(frozen=True, slots=True)
class OneOf:
    """The alternatives in the order in which they are tried."""

    alternatives: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """The first output of a node.

    Attributes:
        op_types: Any of these, in the default domain.
        inputs: Inputs that the node has beyond these must be absent.
        name: Binds the node.
    """

    op_types: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    name: str | None


Pattern: TypeAlias = AnyValue | Const | Scalar | Maybe | OneOf | Op
Root: TypeAlias = Op | OneOf
"""What a rewrite starts from: an operator, or a choice of operators."""


def any_(name: str | None = None) -> AnyValue:
    """Match any present value and bind it to `name`."""
    return AnyValue(name)


def const(name: str) -> Const:
    """Match a constant and bind it to `name`."""
    return Const(name)


def scalar(
    number: float | None = None, *, name: str | None = None, tolerance: float = 1e-6
) -> Scalar:
    """Match a constant of one element that equals `number` up to `tolerance`."""
    return Scalar(number, name, tolerance)


def maybe(pattern: Pattern) -> Maybe:
    """Match an absent input, or what `pattern` matches."""
    return Maybe(pattern)


def one_of(*alternatives: Pattern) -> OneOf:
    """Match the first alternative that fits."""
    return OneOf(alternatives)


def op(op_type: str | tuple[str, ...], *inputs: Pattern, name: str | None = None) -> Op:
    """Match a node of the default domain by type and inputs.

    Args:
        op_type: One type, or several of which any may be there.
        inputs: One pattern per input, in order.
        name: Binds the node, for `Match.node`.
    """
    return Op((op_type,) if isinstance(op_type, str) else op_type, inputs, name)
