"""Cut a region out of a live graph: a small model that shares nothing but the weights with it.

The cost follows the region, not the model, and the live graph sees no additional uses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.walk import all_nodes, outer_values, subgraphs_of
from optcc.verify.copier import Copier, is_weight
from optcc.verify.numeric import epsilon, is_float

__all__ = ["Cut", "RegionTooLargeError", "cut_region", "draws_random", "narrowest"]

MOST_NODES = 1000
_FED_ABOVE_BYTES = 1 << 18
_IR_VERSION = 10
_MOST_REACH = 1e3
_SHAPE_READERS = frozenset({"Shape", "Size"})
_RANDOM = frozenset(
    [
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    ]
)
_STEPPED = frozenset(
    [
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "ArgMax",
        "ArgMin",
        "TopK",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Equal",
        "NonZero",
        "Mod",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "NonMaxSuppression",
        "Unique",
        "Hardmax",
    ]
)


class RegionTooLargeError(Exception):
    """The region has more nodes than a region check may cost."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A region as a model of its own.

    Attributes:
        model: The region; None when every output is an input or a constant.
        inputs: Live values that flow in, by their name in `model`.
        outputs: Live values that flow out, as asked for.
        names: Name in `model` of each output that a node of the region makes.
        constants: Large weights by name; fed, so that they are not copied.
        varying: Outputs that depend on the contents of an input, not only on its shape.
        narrowest: Narrowest float type inside, or None.
        stepped: Whether a node inside makes a step out of a tiny difference.
        random: Whether two runs may differ.
        reach: Largest magnitude of the small float constants inside: bounds that something is
            clipped at or compared with.
    """

    model: ir.Model | None
    inputs: Mapping[str, ir.Value]
    outputs: tuple[ir.Value, ...]
    names: Mapping[ir.Value, str]
    constants: Mapping[str, np.ndarray]
    varying: frozenset[ir.Value]
    narrowest: np.dtype | None
    stepped: bool
    random: bool
    reach: float


def cut_region(
    outputs: Sequence[ir.Value],
    boundary: Collection[ir.Value],
    owner: ir.Model,
    *,
    fixed: Callable[[ir.Value], bool] = lambda _: False,
) -> Cut:
    """Cut the nodes that lie between `boundary` and `outputs`.

    Args:
        outputs: Values to compute.
        boundary: Values at which the region begins. An input of the graph begins it as well.
        owner: The live model: its opset imports and functions.
        fixed: Tells which boundary values do not depend on the data that the model is fed.

    Raises:
        RegionTooLargeError: It has more than `MOST_NODES` nodes.
    """
    nodes, leaves = _collect(outputs, frozenset(boundary))
    copier = Copier()
    inputs = {copier.leaf(v).name or "": v for v in leaves if not is_weight(v)}
    weights = [v for v in leaves if is_weight(v)]
    fed = {v: a for v in weights if (a := _fed(v)) is not None}
    constants = {copier.leaf(v).name or "": a for v, a in fed.items()}
    made = {o for n in nodes for o in n.outputs}
    copies = [copier.node(n) for n in nodes]
    names = {v: copier.name(v) for v in outputs if v in made}
    inside = [v for v in weights if v not in fed]
    model = _assemble(copier, leaves, inside, copies, names, owner) if names else None
    varying = _varying(nodes, {v for v in inputs.values() if not fixed(v)})
    return Cut(
        model,
        inputs,
        tuple(outputs),
        names,
        constants,
        frozenset(v for v in outputs if v in varying),
        narrowest([*leaves, *made]),
        any(n.op_type in _STEPPED for n in nodes),
        any(draws_random(n) for n in nodes),
        _reach(nodes),
    )


def draws_random(node: ir.Node) -> bool:
    """Tell whether `node`, or a node of its subgraphs, may give another result in another run."""
    inner = [n for g in subgraphs_of(node) for n in all_nodes(g)]
    return any(_is_random(n) for n in (node, *inner))


def _is_random(node: ir.Node) -> bool:
    if node.op_type in _RANDOM:
        return True
    if node.op_type != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    training = constant_of(node.inputs[2])
    return training is None or bool(training.any())


def _collect(
    outputs: Sequence[ir.Value], boundary: frozenset[ir.Value]
) -> tuple[list[ir.Node], list[ir.Value]]:
    """Return the nodes in an order in which they can run, and the values that they start from."""
    done: dict[ir.Node, None] = {}
    leaves: dict[ir.Value, None] = {}
    stack: list[ir.Node] = []
    for value in outputs:
        _push(value, boundary, done, leaves, stack)
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            before = len(stack)
            for read in _reads(node):
                _push(read, boundary, done, leaves, stack)
            if len(stack) == before:
                done[stack.pop()] = None
            if len(done) + len(stack) > 8 * MOST_NODES or len(done) > MOST_NODES:
                raise RegionTooLargeError(f"more than {MOST_NODES} nodes")
    return list(done), list(leaves)


def _push(
    value: ir.Value,
    boundary: frozenset[ir.Value],
    done: dict[ir.Node, None],
    leaves: dict[ir.Value, None],
    stack: list[ir.Node],
) -> None:
    producer = value.producer()
    if producer is None or value in boundary:
        leaves[value] = None
    elif producer not in done:
        stack.append(producer)


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    yield from (v for v in node.inputs if v is not None)
    yield from outer_values(node)


def _fed(value: ir.Value) -> np.ndarray | None:
    tensor = value.const_value
    if tensor is None or tensor.nbytes <= _FED_ABOVE_BYTES:
        return None
    array = constant_of(value)
    return array if array is not None and array.dtype.name in ("float32", "float64") else None


def _assemble(
    copier: Copier,
    leaves: Sequence[ir.Value],
    inside: Sequence[ir.Value],
    copies: Sequence[ir.Node],
    names: Mapping[ir.Value, str],
    owner: ir.Model,
) -> ir.Model:
    """Make the model; leaves that are not `inside` it are fed."""
    weights = [copier.leaf(v) for v in inside]
    own = set(inside)
    fed = [copier.leaf(v) for v in leaves if v not in own]
    for value in fed:
        value.const_value = None
    outputs = [copier.leaf(v) for v in names]
    graph = ir.Graph(
        fed,
        outputs,
        nodes=copies,
        initializers=weights,
        opset_imports=dict(owner.opset_imports),
        name="region",
    )
    called = {(n.domain, n.op_type) for n in copies}
    local = [f.clone() for f in owner.functions.values()] if _calls(owner, called) else []
    return ir.Model(graph, ir_version=_IR_VERSION, functions=local)


def _calls(owner: ir.Model, called: set[tuple[str, str]]) -> bool:
    return any((f.domain, f.name) in called for f in owner.functions.values())


def _reach(nodes: Sequence[ir.Node]) -> float:
    bounds = [0.0]
    for node in nodes:
        values = [v.const_value for v in node.inputs if v is not None]
        small = [t for t in values if t is not None and t.size == 1]
        bounds += [float(t.numpy().reshape(())) for t in small if t.dtype.is_floating_point()]
        floats = (a for a in node.attributes.values() if a.type == ir.AttributeType.FLOAT)
        bounds += [a.as_float() for a in floats if not a.is_ref()]
    return max(abs(b) for b in bounds if abs(b) <= _MOST_REACH)


def _varying(nodes: Sequence[ir.Node], free: set[ir.Value]) -> set[ir.Value]:
    varying = set(free)
    for node in nodes:
        if node.op_type in _SHAPE_READERS and node.domain == "":
            continue
        if any(v in varying for v in _reads(node)):
            varying.update(node.outputs)
    return varying


def narrowest(values: Iterable[ir.Value]) -> np.dtype | None:
    """Return the float type with the coarsest rounding among `values`, or None."""
    dtypes = {v.dtype for v in values if v.dtype is not None and v.dtype.is_floating_point()}
    known = [t for t in (_numpy(d) for d in sorted(dtypes, key=int)) if t is not None]
    return max(known, key=epsilon) if known else None


def _numpy(dtype: ir.DataType) -> np.dtype | None:
    found: np.dtype = np.dtype(dtype.numpy())
    return found if is_float(found) else None
