"""What a model must be before any pass sees it: defined, acyclic, known, consistent, finite."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError, UnsupportedModelError
from optcc.graph import io
from optcc.graph.lint import find_undefined
from optcc.graph.shapes import infer_shapes
from optcc.graph.signature import signature_of
from optcc.graph.walk import (
    all_graphs,
    all_nodes,
    all_values,
    graphs_of,
    outer_values,
    subgraphs_of,
)

__all__ = ["check_sound", "refuse_ambiguous_names"]

_NEWEST_OPSET = 24
_RUNTIME_DOMAINS = frozenset({"com.microsoft"})
_SCAN_ELEMENTS = 1 << 20
_SESSION_BYTES = 1 << 30


def check_sound(model: ir.Model) -> None:
    """Raise for the first thing in `model` that no pass and no runtime could handle.

    On the way the nodes are put in order and the shapes of inner values are inferred afresh.

    Raises:
        UnsupportedModelError: With the node, value or tensor named.
    """
    _check_opsets(model)
    _check_interface(model)
    _refuse_first(find_undefined(model))
    _sort(model)
    _check_operators(model)
    _refuse_first(io.check(model))
    _refuse_first(_attribute_faults(model))
    _check_weights(model)
    _infer_or_refuse(model)
    _check_runtime_operators(model)


def refuse_ambiguous_names(model: ir.Model) -> None:
    """Raise when a nested graph repeats a name so that it is unclear which value is read.

    Raises:
        UnsupportedModelError: With the node and the name.
    """
    _refuse_first(_shadowed_names(model.graph))


def _refuse_first(problems: list[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UnsupportedModelError(problems[0] + more)


def _check_opsets(model: ir.Model) -> None:
    imports = model.opset_imports
    if "ai.onnx" in imports:
        imports[""] = imports.pop("ai.onnx")
    if "" not in imports:
        raise UnsupportedModelError("the model imports no version of the default operator set")
    if not 7 <= imports[""] <= _NEWEST_OPSET:
        raise UnsupportedModelError(
            f"the operator set version {imports['']} is not supported, it must be 7 to"
            f" {_NEWEST_OPSET}",
            hint="export the model again at operator set 17 or later",
        )


def _check_interface(model: ir.Model) -> None:
    signature = signature_of(model)
    for kind, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        names = [v.name for v in values]
        for value in values:
            if not value.name or names.count(value.name) > 1:
                raise UnsupportedModelError(f"{kind} {value.name!r} appears twice or has no name")
            if value.type is not None and not isinstance(value.type, ir.TensorType):
                raise UnsupportedModelError(
                    f"{kind} {value.name!r} is not a tensor",
                    hint="export without ZipMap, sequences, maps and optional values",
                )
    for spec in signature.inputs:
        if spec.dtype is None:
            raise UnsupportedModelError(f"input {spec.name!r} has no element type")
    if not signature.outputs:
        raise UnsupportedModelError("the model has no outputs")


def _shadowed_names(root: ir.Graph) -> list[str]:
    """Find names that a nested graph defines again so that runtimes disagree on what is read.

    A nested weight may repeat an outer name as long as nothing inside the same node reads the
    outer value; a nested node output may not.
    """
    problems: list[str] = []
    visible: dict[ir.Graph, set[str]] = {root: {v.name or "" for v in all_values(root)}}
    for graph in all_graphs(root):
        for node in graph:
            read_outside = {v.name for v in outer_values(node)}
            for inner in subgraphs_of(node):
                own = {v.name or "" for v in all_values(inner)}
                produced = own - set(inner.initializers)
                clash = sorted((produced & visible[graph]) | (own & read_outside))
                problems += [
                    f"node {node.name!r} ({node.op_type}) holds a graph that defines"
                    f" {name!r} again, which is also a value around it"
                    for name in clash
                ]
                visible[inner] = visible[graph] | own
    return problems


def _sort(model: ir.Model) -> None:
    """Put the nodes in order; a file may hold them in any."""
    for graph in graphs_of(model):
        cycle = _nodes_in_cycle(graph)
        if cycle:
            names = " -> ".join(repr(n) for n in cycle[:6])
            raise UnsupportedModelError(
                f"the graph has a cycle: {names}", where=f"node {cycle[0]!r}"
            )
    model.graph.sort()


def _nodes_in_cycle(graph: ir.Graph) -> list[str]:
    """Return the names along one cycle, or nothing."""
    waiting = {n: _producers(n, graph) for n in graph}
    readers: dict[ir.Node, list[ir.Node]] = {n: [] for n in graph}
    for node, producers in waiting.items():
        for producer in producers:
            readers[producer].append(node)
    open_inputs = {n: len(p) for n, p in waiting.items()}
    ready = [n for n, count in open_inputs.items() if count == 0]
    while ready:
        for reader in readers[ready.pop()]:
            open_inputs[reader] -= 1
            if open_inputs[reader] == 0:
                ready.append(reader)
    stuck = {n for n, count in open_inputs.items() if count > 0}
    return _follow(stuck, waiting)


def _producers(node: ir.Node, graph: ir.Graph) -> list[ir.Node]:
    read = [*node.inputs, *outer_values(node)]
    found = (v.producer() for v in read if v is not None)
    return list(dict.fromkeys(p for p in found if p is not None and p.graph is graph))


def _follow(stuck: set[ir.Node], waiting: dict[ir.Node, list[ir.Node]]) -> list[str]:
    """Walk backwards from a stuck node until one repeats: that is the cycle."""
    trail: dict[ir.Node, None] = {}
    node = next((n for n in waiting if n in stuck), None)
    while node is not None and node not in trail:
        trail[node] = None
        node = next((p for p in waiting[node] if p in stuck), None)
    if node is None:
        return []
    names = list(trail)
    return [n.name or "" for n in reversed(names[names.index(node) :])]


def _check_operators(model: ir.Model) -> None:
    for node in all_nodes(model.graph):
        where = f"node {node.name!r}"
        version = model.opset_imports.get(node.domain)
        if version is None:
            raise UnsupportedModelError(
                f"{where} is of the domain {node.domain!r}, which the model does not import",
                where=where,
            )
        if node.domain in _RUNTIME_DOMAINS:
            continue
        if not io.operator_known(node.domain, node.op_type, version):
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            raise UnsupportedModelError(
                f"{where} uses the unknown operator {name} (version {version})",
                hint="replace it by standard operators, or export again",
                where=where,
            )


_CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger", "DeformConv")
_POOLS = ("MaxPool", "AveragePool", "LpPool", "MaxUnpool")
_POSITIVE = ("kernel_shape", "strides", "dilations")


def _attribute_faults(model: ir.Model) -> list[str]:
    """Find numbers that the operator definitions forbid in words only."""
    windowed = [
        node
        for node in all_nodes(model.graph)
        if node.domain == "" and node.op_type in (*_CONVOLUTIONS, *_POOLS)
    ]
    faults = [
        f"node {node.name!r} ({node.op_type}) has {name} {list(numbers)}, all must be 1 or more"
        for node in windowed
        for name in _POSITIVE
        if (numbers := node.attributes.get_ints(name)) is not None and min(numbers, default=1) < 1
    ]
    return faults + [
        f"node {node.name!r} ({node.op_type}) has group {group}, it must be 1 or more"
        for node in windowed
        if (group := node.attributes.get_int("group", 1)) < 1
    ]


def _check_weights(model: ir.Model) -> None:
    for graph in graphs_of(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None and _has_nan(value.const_value):
                raise UnsupportedModelError(
                    f"weight {name!r} holds NaN",
                    hint="the training diverged or the file is damaged: export a sound checkpoint",
                    where=f"tensor {name!r}",
                )


def _has_nan(tensor: ir.TensorProtocol) -> bool:
    """Look through the data in pieces, so that a large file is not copied."""
    if not tensor.dtype.is_floating_point() or tensor.dtype.bitwidth < 16:
        return False
    shape = tensor.shape.numpy()
    if not shape or math.prod(shape) == 0:
        return False
    flat = tensor.numpy().reshape(-1)
    pieces = range(0, flat.size, _SCAN_ELEMENTS)
    return any(bool(np.isnan(flat[k : k + _SCAN_ELEMENTS]).any()) for k in pieces)


def _infer_or_refuse(model: ir.Model) -> None:
    """Infer shapes; a contradiction counts when the runtime cannot open the model either.

    The inference of onnx is stricter than the operators are in a few places.
    """
    try:
        infer_shapes(model, strict=True)
    except UnsupportedModelError:
        if _runtime_objection(model) != "":
            raise
        infer_shapes(model)


def _check_runtime_operators(model: ir.Model) -> None:
    """Ask the reference runtime about operators that the standard leaves to it."""
    foreign = [n for n in all_nodes(model.graph) if _is_foreign(n, model)]
    objection = _runtime_objection(model) if foreign else ""
    if objection:
        raise UnsupportedModelError(
            f"the runtime refuses the model: {objection}", where=f"node {foreign[0].name!r}"
        )


def _runtime_objection(model: ir.Model) -> str | None:
    """Return what the reference runtime says against the model; None when it was not asked."""
    weights = (v.const_value for g in graphs_of(model) for v in g.initializers.values())
    if sum(t.nbytes for t in weights if t is not None) > _SESSION_BYTES:
        return None
    from optcc.runtime.session import Session

    try:
        Session(io.to_bytes(model))
    except BackendError as error:
        return error.what
    return ""


def _is_foreign(node: ir.Node, model: ir.Model) -> bool:
    if node.domain != "":
        return True
    return io.operator_deprecated("", node.op_type, model.opset_imports[""])
