"""Change a graph so that names stay: the replacing value takes the name of the replaced one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.walk import all_nodes, order_in, subgraphs_of, taken_names

__all__ = [
    "add_constant",
    "constant_of",
    "fresh_name",
    "is_constant",
    "needs_identity",
    "remove_dead",
    "remove_nodes",
    "replace_node",
]


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """Return the number that `value` always has, or None when it depends on something.

    An initializer that is also a graph input is only a default, so it is no constant.
    The array may be a read-only view of the model file.
    """
    if value is None:
        return None
    if value.is_initializer():
        return None if value.is_graph_input() else _array(value.const_value)
    return _of_constant_node(value)


def is_constant(value: ir.Value | None) -> bool:
    """Tell whether `constant_of` gives an array, without reading the data."""
    if value is None:
        return False
    if value.is_initializer():
        return not value.is_graph_input() and value.const_value is not None
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or producer.domain != "":
        return False
    return any(a.name in _READERS and not a.is_ref() for a in producer.attributes.values())


_READERS: dict[str, Callable[[ir.Attr], np.ndarray | None]] = {
    "value": lambda a: _array(a.as_tensor()),
    "value_float": lambda a: np.array(a.as_float(), np.float32),
    "value_floats": lambda a: np.array(a.as_floats(), np.float32),
    "value_int": lambda a: np.array(a.as_int(), np.int64),
    "value_ints": lambda a: np.array(a.as_ints(), np.int64),
    "value_string": lambda a: np.array(a.as_string(), np.object_),
    "value_strings": lambda a: np.array(a.as_strings(), np.object_),
}


def _of_constant_node(value: ir.Value) -> np.ndarray | None:
    if not is_constant(value):
        return None
    producer = value.producer()
    assert producer is not None
    for attribute in producer.attributes.values():
        if attribute.name in _READERS and not attribute.is_ref():
            return _READERS[attribute.name](attribute)
    return None


def _array(tensor: ir.TensorProtocol | None) -> np.ndarray | None:
    return None if tensor is None else np.asarray(tensor.numpy())


def fresh_name(graph: ir.Graph, wanted: str, taken: set[str] | None = None) -> str:
    """Return `wanted`, or `wanted` with the least number that makes it unused in `graph`.

    Args:
        graph: Its values and those of the graphs nested in it are looked at.
        wanted: The name to begin with.
        taken: Names in use, from `taken_names`; the new one is added. It spares who asks often
            a walk over the graph each time, and must cover names that were given since.
    """
    if taken is None:
        return _unused(wanted, taken_names(graph))
    unique = _unused(wanted, taken)
    taken.add(unique)
    return unique


def _unused(wanted: str, taken: set[str]) -> str:
    if wanted not in taken:
        return wanted
    number = 1
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def add_constant(
    graph: ir.Graph,
    name: str,
    array: np.ndarray | ir.TensorProtocol,
    taken: set[str] | None = None,
) -> ir.Value:
    """Add an initializer to `graph`.

    Args:
        graph: The graph that gets it; a subgraph may get its own.
        name: Name it shall have; a number is added when a value of that name exists.
        array: The data, as an array or as a tensor (for types that numpy does not know).
        taken: See `fresh_name`.

    Returns:
        The new value, ready to be the input of a node.
    """
    unique = fresh_name(graph, name, taken)
    tensor = ir.tensor(array, name=unique) if isinstance(array, np.ndarray) else array
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=unique, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def replace_node(
    graph: ir.Graph,
    old_nodes: Sequence[ir.Node],
    new_nodes: Sequence[ir.Node],
    old_outputs: Sequence[ir.Value],
    new_outputs: Sequence[ir.Value],
) -> list[ir.Value]:
    """Put `new_nodes` where `old_nodes` are; readers of an old output read the new one.

    A value made by the new nodes takes over the name of the value that it stands for; an output
    of the graph also keeps its type and shape. Where an output of the graph would become a graph
    input, an initializer or a second name of another output, an Identity carries the old name.

    Args:
        graph: The graph that holds all of them.
        old_nodes: Nodes that disappear; nothing else may read their values.
        new_nodes: Nodes to insert, in order; they belong to no graph yet.
        old_outputs: Values of the old nodes that are still wanted.
        new_outputs: For each of them the value that replaces it: made by a new node, or any value
            that is known at that place already.

    Returns:
        The values that now stand for `old_outputs`; they differ from `new_outputs` where an
        Identity was needed.
    """
    _name_new(graph, new_nodes, old_outputs, new_outputs)
    anchor = _anchor(graph, old_nodes, old_outputs)
    if new_nodes and anchor is not None:
        graph.insert_after(anchor, new_nodes)
    elif new_nodes:
        _insert_early(graph, new_nodes)
    made = {v for n in new_nodes for v in n.outputs}
    standing = [
        _take_over(graph, old, new, new in made)
        for old, new in zip(old_outputs, new_outputs, strict=True)
    ]
    remove_nodes(graph, old_nodes)
    return standing


def _take_over(graph: ir.Graph, old: ir.Value, new: ir.Value, made: bool) -> ir.Value:
    if old is new:
        return old
    if needs_identity(graph, old, new):
        return _carry_output(graph, old, new)
    if made or old.is_graph_output():
        _copy_type(old, new, force=old.is_graph_output())
        new.name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    return new


def needs_identity(graph: ir.Graph, old: ir.Value, new: ir.Value) -> bool:
    """Tell whether `new` can stand for `old` only behind an Identity.

    So it is where `old` is an output of `graph`, whose name must stay, and `new` cannot take that
    name: it is an input, an initializer, another output, or a value of an outer graph.
    """
    if not old.is_graph_output():
        return False
    producer = new.producer()
    return producer is None or producer.graph is not graph or new.is_graph_output()


def _carry_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> ir.Value:
    """Give the output name of `old` to an Identity of `new`; all other readers read `new`."""
    node = ir.Node("", "Identity", [new], name=f"{old.name}.Identity")
    carrier = node.outputs[0]
    _copy_type(old, carrier, force=True)
    carrier.name = old.name
    for user, index in old.uses():
        user.replace_input_with(index, new)
    old.replace_all_uses_with(carrier, replace_graph_outputs=True)
    graph.append(node)
    return carrier


def _copy_type(old: ir.Value, new: ir.Value, *, force: bool) -> None:
    if old.type is not None and (force or new.type is None):
        new.type = old.type
    if force or (old.shape is not None and new.shape is None):
        new.shape = None if old.shape is None else old.shape.copy()
    new.metadata_props.update(old.metadata_props)


def _name_new(
    graph: ir.Graph,
    new_nodes: Sequence[ir.Node],
    old_outputs: Sequence[ir.Value],
    new_outputs: Sequence[ir.Value],
) -> None:
    """Name new nodes and values after the value that they serve, where the caller did not."""
    if not new_nodes or not old_outputs:
        return
    base = old_outputs[0].name or "value"
    serves = {new: old for old, new in zip(old_outputs, new_outputs, strict=True)}
    if any(v.name is None for n in new_nodes for v in n.outputs):
        _name_values(new_nodes, serves, base, taken_names(graph))
    if any(not n.name for n in new_nodes):
        names = {n.name for n in all_nodes(graph) if n.name}
        for node in new_nodes:
            if not node.name:
                node.name = _unused(_node_stem(node, serves, base), names)
            names.add(node.name)


def _name_values(
    new_nodes: Sequence[ir.Node], serves: dict[ir.Value, ir.Value], base: str, taken: set[str]
) -> None:
    for node in new_nodes:
        for index, value in enumerate(node.outputs):
            if value.name is None:
                stem = serves[value].name if value in serves else base
                value.name = _unused(f"{stem}.{node.op_type.lower()}{index or ''}", taken)
            taken.add(value.name)


def _node_stem(node: ir.Node, serves: dict[ir.Value, ir.Value], base: str) -> str:
    for value in node.outputs:
        if value in serves:
            return f"{serves[value].name}.{node.op_type}"
    return f"{base}.{node.op_type}"


def _anchor(
    graph: ir.Graph, old_nodes: Sequence[ir.Node], old_outputs: Sequence[ir.Value]
) -> ir.Node | None:
    """Return the node after which everything the old nodes read is known and nothing is missed."""
    if len(old_nodes) <= 1:
        return old_nodes[0] if old_nodes else None
    if len(old_outputs) == 1 and old_outputs[0].producer() in old_nodes:
        return old_outputs[0].producer()
    order = order_in(graph)
    last = max(old_nodes, key=order.__getitem__)
    inside = set(old_nodes)
    readers = (u.node for v in old_outputs for u in v.uses() if u.node not in inside)
    first_reader = min((order[r] for r in readers if r in order), default=len(order))
    return last if order[last] < first_reader else None


def _insert_early(graph: ir.Graph, new_nodes: Sequence[ir.Node]) -> None:
    """Insert right after the last producer of what the new nodes read."""
    order = order_in(graph)
    inside = set(new_nodes)
    read = (v for n in new_nodes for v in _reads(n) if v is not None)
    producers = [p for v in read if (p := v.producer()) is not None and p not in inside]
    local = [p for p in producers if p.graph is graph]
    if local:
        graph.insert_after(max(local, key=order.__getitem__), new_nodes)
    elif len(graph) > 0:
        graph.insert_before(graph[0], new_nodes)
    else:
        graph.extend(new_nodes)


def _reads(node: ir.Node) -> Iterable[ir.Value | None]:
    yield from node.inputs
    for graph in subgraphs_of(node):
        for inner in all_nodes(graph):
            yield from inner.inputs


def remove_nodes(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """Remove nodes that nothing reads any more; what they (and their subgraphs) read is released.

    Raises:
        ValueError: A value of one of them is still read or is an output of the graph.
    """
    doomed = list(dict.fromkeys(nodes))
    if not doomed:
        return
    graph.remove(doomed, safe=True)
    for node in doomed:
        for inner_graph in subgraphs_of(node):
            _release(inner_graph)


def _release(graph: ir.Graph) -> None:
    for node in all_nodes(graph):
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def remove_dead(graph: ir.Graph) -> list[str]:
    """Remove nodes and initializers that no output needs, in nested graphs too.

    Inputs and outputs stay as they are.

    Returns:
        Names of the removed nodes and initializers, in the order of removal.
    """
    removed: list[str] = []
    for node in reversed(graph):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            removed.append(node.name or "")
            remove_nodes(graph, [node])
            continue
        for inner in subgraphs_of(node):
            removed.extend(remove_dead(inner))
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[name]
            removed.append(name)
    return removed
