"""Attention cores in the spellings that exporters give them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

BOOL = ir.DataType.BOOL
SCALE = 0.5
"""1 / sqrt of the head dim, 4."""

Scores = Callable[[Sketch, ir.Value], ir.Value]


def _number(s: Sketch, number: float, *dims: int) -> ir.Value:
    return s.constant(f"c{len(s.graph.initializers)}", np.full(dims, number, np.float32))


def _scaled(s: Sketch, value: ir.Value, number: float, by: str, place: str) -> ir.Value:
    number = 1 / number if by == "Div" else number
    return s.op(by, value, _number(s, number), name=f"{place}.scale")


SCALES = {
    "none": {},
    "q": {"q": "Mul"},
    "k": {"k": "Mul"},
    "both": {"q": "Mul", "k": "Mul"},
    "scores": {"scores": "Mul"},
    "divided": {"scores": "Div"},
    "q-divided": {"q": "Div"},
    "early-k": {"early-k": "Mul"},
    "early-both": {"early-q": "Mul", "early-k": "Mul"},
    "q-and-scores": {"q": "Mul", "scores": "Div"},
    "everywhere": {"early-q": "Mul", "q": "Mul", "k": "Div", "scores": "Mul"},
}
"""Where the scale stands, and as which operator."""

MOVES = sorted(set(SCALES) - {"none", "q"})


def _bias(s: Sketch) -> ir.Value:
    return s.input("mask", ["N", 1, 1, 5])


def _choice(s: Sketch) -> ir.Value:
    return s.input("mask", ["N", 1, 5, 5], BOOL)


def _causal(s: Sketch) -> ir.Value:
    return s.constant("causal", np.triu(np.full((5, 5), -1e9, np.float32), 1))


def _flat(s: Sketch, x: ir.Value) -> ir.Value:
    """Batch and heads as one axis, apart only for the mask."""
    flat = s.op("Reshape", x, s.integers("flat", -1, 5, 5))
    apart = s.op("Reshape", flat, s.integers("apart", -1, 4, 5, 5))
    return s.op("Add", apart, _bias(s), name="masked")


MASKS: dict[str, Scores] = {
    "reshaped": _flat,
    "none": lambda s, x: x,
    "added": lambda s, x: s.op("Add", x, _bias(s), name="masked"),
    "added-left": lambda s, x: s.op("Add", _bias(s), x, name="masked"),
    "subtracted": lambda s, x: s.op("Sub", x, _bias(s), name="masked"),
    "causal": lambda s, x: s.op("Add", x, _causal(s), name="masked"),
    "where": lambda s, x: s.op("Where", _choice(s), x, _number(s, -1e9), name="masked"),
    "where-swapped": lambda s, x: s.op("Where", _choice(s), _number(s, -1e9), x, name="masked"),
    "two": lambda s, x: s.op("Add", s.op("Add", x, _bias(s)), _causal(s), name="masked"),
    "chosen-bias": lambda s, x: s.op(
        "Add", x, s.op("Where", _choice(s), _number(s, 0.0), _number(s, -1e9)), name="masked"
    ),
}


def _heads(s: Sketch, tag: str, heads: int, repeat: str | None) -> ir.Value:
    x = s.op("Identity", s.input(tag, ["N", heads, 5, 4]), name=f"{tag}.in")
    if repeat == "expand":
        wide = s.op("Unsqueeze", x, s.integers(f"{tag}.axis", 2))
        wide = s.op("Expand", wide, s.integers(f"{tag}.times", 1, 1, 2, 1, 1))
        return s.op("Reshape", wide, s.integers(f"{tag}.shape", 0, heads * 2, 5, 4))
    if repeat == "tile":
        return s.op("Tile", x, s.integers(f"{tag}.times", 1, 2, 1, 1))
    return x


def attention(
    scale: str = "q",
    mask: str | Scores = "none",
    *,
    repeat: str | None = None,
    guard: bool = False,
    axis: int = -1,
    twist: dict[str, Scores] | None = None,
) -> Sketch:
    """q, k, v [N, 4 (2 where repeated), 5, 4] -> y [N, 4, 5, 4].

    Args:
        scale: Of `SCALES`.
        mask: Of `MASKS`, or what makes one.
        repeat: How heads of k and v are repeated: expand or tile.
        guard: Put 0 for probabilities that are no number.
        axis: Of the Softmax.
        twist: What else happens: to q, k, scores, probabilities.
    """
    s = Sketch()
    where, twists = SCALES[scale], twist or {}
    part = SCALE ** (1 / max(1, len(where)))

    def at(place: str, value: ir.Value) -> ir.Value:
        value = _scaled(s, value, part, where[place], place) if place in where else value
        return twists[place](s, value) if place in twists else value

    few = 2 if repeat else 4
    q = at("early-q", _heads(s, "q", 4, None))
    k = at("early-k", _heads(s, "k", few, repeat))
    v = _heads(s, "v", few, repeat)
    q = at("q", s.op("Transpose", s.op("Transpose", q, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3]))
    k = at("k", s.op("Transpose", k, perm=[0, 1, 3, 2], name="kt"))
    scores = at("scores", s.op("MatMul", q, k, name="scores"))
    scores = (MASKS[mask] if isinstance(mask, str) else mask)(s, scores)
    p = s.op("Softmax", at("masked", scores), axis=axis, name="softmax")
    if guard:
        p = s.op("Where", s.op("IsNaN", p), _number(s, 0.0), p, name="guard")
    p = at("probabilities", p)
    s.output(s.op("MatMul", p, v, name="mix", to="y"), ["N", 4, 5, 4])
    return s
