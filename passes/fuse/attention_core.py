"""Where scaled-dot-product attention is, in whatever spelling.

probabilities = softmax(scale * Q @ K^T + mask)        the steps from the product to Softmax
y = probabilities @ V                                   the root
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.rewrite import Reject, refuse
from passes.eliminate.noop import NOOP_TESTS
from passes.fuse.attention_factors import (
    LAYOUT,
    Factor,
    factor_at,
    factors_behind,
    is_transposed,
)

__all__ = ["Core", "core_at", "is_finite"]

_LIMIT = 12
"""Nodes between a product and its Softmax, or behind that; real cores have up to five."""

_DATA = {"Where": (1, 3), **dict.fromkeys(("Div", "Dropout", "Reshape", "Sub"), (0, 1))}
"""The range of inputs that hold numbers, where not all do."""

_THROUGH = ("Cast", "Identity", "Reshape")


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """One attention core.

    Attributes:
        root: The product of probabilities and V.
        product: The product of Q and K, transposed.
        softmax: Over the last axis.
        steps: From the product to the Softmax, both left out, the first one first.
        after: From the Softmax to the root, both left out.
        masks: What is added to the scores, or what decides between them and a number.
        on_scores: Factors among the steps.
        on_q: Factors on Q, the nearest to the product first.
        on_k: The same of K.
        guard: What puts 0 where a row of probabilities is no number; None when nothing does.
    """

    root: ir.Node
    product: ir.Node
    softmax: ir.Node
    steps: tuple[ir.Node, ...]
    after: tuple[ir.Node, ...]
    masks: tuple[ir.Value, ...]
    on_scores: tuple[Factor, ...]
    on_q: tuple[Factor, ...]
    on_k: tuple[Factor, ...]
    guard: ir.Node | None

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Return all factors."""
        return (*self.on_q, *self.on_k, *self.on_scores)


def core_at(root: ir.Node) -> Core | None:
    """Read the core that ends in `root`; None when there is none, or nothing like one.

    Raises:
        Reject: It looks like one and is none.
    """
    if root.op_type != "MatMul" or root.domain != "" or any(is_constant(v) for v in root.inputs):
        return None
    after = _toward(root.inputs[0], _is_softmax, ("Where", "Dropout", "Add", "Mul", *_THROUGH))
    if after is None:
        return None
    softmax, *later = after
    steps = _toward(
        softmax.inputs[0], _is_product, ("Add", "Sub", "Where", "Mul", "Div", *_THROUGH)
    )
    if steps is None:
        return None
    product, *between = steps
    _refuse_softmax(softmax)
    _refuse_other_rows([*between, *later])
    guard = _guard(softmax, later)
    masks, on_scores = _read_steps(product, between)
    q, k = product.inputs
    assert q is not None
    assert k is not None
    refuse(not is_transposed(k), f"K ({k.name!r}) is not transposed on its last two axes")
    core = Core(
        root,
        product,
        softmax,
        tuple(between),
        tuple(later),
        tuple(masks),
        tuple(on_scores),
        tuple(factors_behind(q)),
        tuple(factors_behind(k)),
        guard,
    )
    _refuse_readers(core)
    return core


def _is_softmax(node: ir.Node) -> bool:
    return node.op_type == "Softmax"


def _is_product(node: ir.Node) -> bool:
    return node.op_type == "MatMul" and not any(is_constant(v) for v in node.inputs)


def _toward(
    value: ir.Value | None, wanted: Callable[[ir.Node], bool], through: tuple[str, ...]
) -> list[ir.Node] | None:
    """Return the nodes on the way from what is `wanted` to `value`, both ends included."""
    paths: list[tuple[ir.Value | None, list[ir.Node]]] = [(value, [])]
    while paths:
        current, path = paths.pop()
        node = None if current is None else current.producer()
        if node is None or node.domain != "" or len(path) > _LIMIT:
            continue
        if wanted(node):
            return [node, *path]
        if node.op_type in through:
            paths.extend((v, [node, *path]) for v in reversed(_data_inputs(node)))
    return None


def _data_inputs(node: ir.Node) -> list[ir.Value]:
    """Return the inputs whose numbers the output may hand on."""
    first, last = _DATA.get(node.op_type, (0, len(node.inputs)))
    return [v for v in node.inputs[first:last] if v is not None and not is_constant(v)]


def _refuse_softmax(softmax: ir.Node) -> None:
    axis, rank = softmax.attributes.get_int("axis", -1), known_rank(softmax.inputs[0])
    last = axis == -1 or (rank is not None and axis == rank - 1)
    refuse(not last, f"{softmax.name!r} is over axis {axis}, not over the last one")


def _refuse_other_rows(nodes: list[ir.Node]) -> None:
    for node in (n for n in nodes if n.op_type == "Reshape"):
        lasts = [
            v.shape[-1] for v in (node.inputs[0], node.outputs[0]) if v is not None and v.shape
        ]
        refuse(len(set(lasts)) > 1, f"{node.name!r} gives the scores other rows")


def _guard(softmax: ir.Node, later: list[ir.Node]) -> ir.Node | None:
    """Find what replaces probabilities that are no numbers; refuse all else behind the Softmax."""
    guard = None
    for node in later:
        kind, name = node.op_type, node.name
        refuse(kind == "Add", f"{name!r} adds a mask after the Softmax")
        refuse(kind == "Mul", f"{name!r} multiplies the probabilities")
        trains = kind == "Dropout" and not NOOP_TESTS["Dropout"](node)
        refuse(trains, f"{name!r} is a Dropout that may be in training mode")
        if kind == "Where":
            refuse(
                guard is not None or not _is_guard(node), f"{name!r} is a mask after the Softmax"
            )
            guard = node
    return guard


def _is_guard(node: ir.Node) -> bool:
    """Tell whether it is Where(IsNaN(p), 0, p)."""
    condition, zero, kept = node.inputs
    test = None if condition is None else condition.producer()
    if test is None or test.op_type != "IsNaN" or test.domain != "" or test.inputs[0] is not kept:
        return False
    array = constant_of(zero)
    return array is not None and not array.any()


def _read_steps(product: ir.Node, between: list[ir.Node]) -> tuple[list[ir.Value], list[Factor]]:
    """Return masks and factors.

    Raises:
        Reject: The order or the kind of a step is another one.
    """
    masks: list[ir.Value] = []
    factors: list[Factor] = []
    scores = product.outputs[0]
    cast = None
    for node in between:
        if node.op_type in ("Mul", "Div"):
            factors.append(_factor(node, scores))
            refuse(bool(masks), f"{node.name!r} scales after the mask")
            refuse(cast is not None, f"{node.name!r} scales after the scores are cast")
        elif node.op_type == "Cast":
            cast = node
        elif node.op_type not in ("Identity", "Reshape"):
            masks.append(_mask(node, scores))
        scores = node.outputs[0]
    return masks, factors


def _factor(node: ir.Node, scores: ir.Value) -> Factor:
    other = next((v for v in node.inputs if v is not scores), None)
    name = None if other is None else other.name
    refuse(not is_constant(other), f"its scale {name!r} is not constant")
    factor = factor_at(node)
    if factor is None:
        raise Reject(f"its scale {name!r} is not one number for all heads")
    return factor


def _mask(node: ir.Node, scores: ir.Value) -> ir.Value:
    """Return what is added, or the condition of a Where with a number in its other branch."""
    if node.op_type != "Where":
        return next((v for v in node.inputs if v is not None and v is not scores), scores)
    condition, *branches = node.inputs
    other = next((v for v in branches if v is not None and v is not scores), None)
    array = constant_of(other)
    small = array is not None and array.size == 1 and float(array.reshape(())) < 0
    refuse(not small, f"{node.name!r} puts no negative number where it masks")
    assert condition is not None
    return condition


def _refuse_readers(core: Core) -> None:
    inside = {core.root, core.softmax, *core.steps, *core.after}
    if core.guard is not None and core.guard.inputs[0] is not None:
        inside.add(core.guard.inputs[0].producer())  # type: ignore[arg-type]
    for node in (core.product, *core.steps, core.softmax, *core.after):
        value = node.outputs[0]
        refuse(value.is_graph_output(), f"value {value.name!r} is also a graph output")
        other = next((u.node for u in value.uses() if u.node not in inside), None)
        if other is not None:
            raise Reject(f"value {value.name!r} is also read by {other.name!r}")


def is_finite(value: ir.Value | None) -> bool:
    """Tell whether `value` is known to hold finite numbers only."""
    for _ in range(_LIMIT):
        array = constant_of(value)
        if array is not None:
            return bool(np.isfinite(array).all())
        node = None if value is None else value.producer()
        if node is None or node.domain != "":
            return False
        if node.op_type == "Where":
            return all(_is_finite_constant(v) for v in node.inputs[1:])
        if node.op_type not in LAYOUT:
            return False
        value = node.inputs[0]
    return False


def _is_finite_constant(value: ir.Value | None) -> bool:
    array = constant_of(value)
    return array is not None and bool(np.isfinite(array).all())
