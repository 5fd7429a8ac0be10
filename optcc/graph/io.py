"""Bytes in and bytes out of the in-memory graph: the only module that touches protobuf."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from optcc.errors import ConfigError, UnsupportedModelError, WriteError
from optcc.graph.external import DataFiles, Span
from optcc.graph.raw_checks import tensor_problem, text_problem
from optcc.graph.walk import all_nodes, graphs_of

__all__ = [
    "check",
    "clone",
    "evaluate",
    "infer_values",
    "operator_deprecated",
    "operator_known",
    "parse_model",
    "read_bytes",
    "read_model",
    "to_bytes",
    "without_weights",
    "write_model",
]

_KEEP_BYTES = 1 << 12

_INLINE_BYTES = 1 << 10
"""Tensors up to this size stay in the model file when the others get a data file."""

_ALIGNMENT = 4096
_EXTERNAL_ABOVE = 1536 << 20
_FILE_LIMIT = (2 << 30) - 1


# ---- reading


def read_model(path: Path, *, data_root: Path | None = None) -> ir.Model:
    """Read an ONNX file; external data is judged by us and memory mapped.

    Args:
        path: Never written to.
        data_root: A folder besides the model's own that its external data may lie in.

    Raises:
        ConfigError: The file is missing or cannot be read.
        UnsupportedModelError: It is no ONNX model, or its data is malformed or out of bounds.
    """
    return parse_model(read_bytes(path), path, data_root=data_root)


def read_bytes(path: Path) -> bytes:
    """Read the model file itself.

    Raises:
        ConfigError: The file is missing or cannot be read.
        UnsupportedModelError: It is empty or larger than a protobuf file can be.
    """
    if not path.exists():
        raise ConfigError(f"model file {path} does not exist")
    if not path.is_file():
        raise ConfigError(f"{path} is not a file")
    try:
        if path.stat().st_size > _FILE_LIMIT:
            raise UnsupportedModelError(
                f"{path.name} is larger than 2 GiB, so it is not an ONNX model", where=path.name
            )
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", where=path.name) from error
    if not data:
        raise UnsupportedModelError(f"{path.name} is empty", where=path.name)
    return data


def parse_model(data: bytes, path: Path, *, data_root: Path | None = None) -> ir.Model:
    """Make the graph from the bytes of the model file at `path`; see `read_model`."""
    proto = _parse(data, path)
    problem = text_problem(proto)
    if problem:
        raise UnsupportedModelError(f"{path.name} is malformed: {problem}", where=path.name)
    for tensor in _tensors(proto):
        problem = tensor_problem(tensor)
        if problem:
            where = f"tensor {tensor.name!r}"
            raise UnsupportedModelError(f"{where} {problem}", where=where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # keys of external data that only other tools know
            model = ir.from_proto(proto)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise UnsupportedModelError(
            f"{path.name} is malformed: {_root_cause(error)}", where=path.name
        ) from error
    _map_external(model, DataFiles(path, data_root))
    return model


def _parse(data: bytes, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise UnsupportedModelError(
            f"{path.name} is not a valid ONNX model: it is truncated, corrupt or another format",
            hint="export it again, or fetch it again and compare its size",
            where=path.name,
        ) from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise UnsupportedModelError(
            f"{path.name} is not an ONNX model: it holds no graph", where=path.name
        )
    if not 3 <= proto.ir_version <= onnx.IR_VERSION:
        raise UnsupportedModelError(
            f"{path.name} has IR version {proto.ir_version}, it must be 3 to {onnx.IR_VERSION}",
            hint="export it again with a current exporter",
            where=path.name,
        )
    return proto


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def _graph_protos(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    stack = [graph]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(_inner_protos(current.node)))


def _inner_protos(nodes: object) -> list[onnx.GraphProto]:
    inner: list[onnx.GraphProto] = []
    for attribute in (a for n in nodes for a in n.attribute):  # type: ignore[attr-defined]
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner.append(attribute.g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            inner.extend(attribute.graphs)
    return inner


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every dense tensor; refuse what the in-memory graph would drop without a word."""
    functions = [
        g for f in proto.functions for i in _inner_protos(f.node) for g in _graph_protos(i)
    ]
    node_lists = [list(f.node) for f in proto.functions]
    for graph in [*_graph_protos(proto.graph), *functions]:
        for sparse in graph.sparse_initializer:
            raise UnsupportedModelError(
                f"initializer {sparse.values.name!r} is sparse, which is not supported",
                hint="store it as a dense tensor",
                where=f"tensor {sparse.values.name!r}",
            )
        names: set[str] = set()
        for name in (t.name for t in graph.initializer):
            if not name or name in names:
                problem = "appears twice" if name else "has no name"
                raise UnsupportedModelError(f"initializer {name!r} {problem}")
            names.add(name)
        yield from graph.initializer
        node_lists.append(list(graph.node))
    for attribute in (a for nodes in node_lists for n in nodes for a in n.attribute):
        if attribute.type == onnx.AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors


def _map_external(model: ir.Model, files: DataFiles) -> None:
    """Put views of the mapped data files where the graph holds paths."""
    for graph in graphs_of(model):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _mapped(value.const_value, files)
        for node in graph:
            _map_attributes(node, files)


def _map_attributes(node: ir.Node, files: DataFiles) -> None:
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            if isinstance(tensor, ir.ExternalTensor):
                node.attributes[name] = ir.AttrTensor(name, _mapped(tensor, files))
        elif attribute.type == ir.AttributeType.TENSORS:
            tensors = [
                _mapped(t, files) if isinstance(t, ir.ExternalTensor) else t
                for t in attribute.as_tensors()
            ]
            node.attributes[name] = ir.AttrTensors(name, tensors)


def _mapped(tensor: ir.ExternalTensor, files: DataFiles) -> ir.TensorProtocol:
    dims = tensor.shape.numpy()
    bits = tensor.dtype.bitwidth
    nbytes = -(-math.prod(dims) * bits // 8)
    span = Span(tensor.name or "", str(tensor.location), tensor.offset or 0, tensor.length)
    data = np.frombuffer(files.read(span, nbytes), np.uint8)
    shape = ir.Shape(dims)
    if bits < 8:
        return ir.PackedTensor(data, tensor.dtype, shape=shape, name=tensor.name)
    array = data.view(tensor.dtype.numpy().newbyteorder("<")).reshape(dims)
    return ir.Tensor(array, tensor.dtype, shape=shape, name=tensor.name)


# ---- writing


def to_bytes(model: ir.Model) -> bytes:
    """Serialize `model`, weights inline, the same bytes for the same graph.

    Raises:
        UnsupportedModelError: It needs more than the 2 GiB that one file can hold.
    """
    try:
        return bytes(ir.to_proto(model).SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        if _weight_bytes(model) < _FILE_LIMIT // 2:
            raise
        raise UnsupportedModelError("the model does not fit into one file of 2 GiB") from error


def write_model(
    model: ir.Model, path: Path, *, external_above: int = _EXTERNAL_ABOVE
) -> list[Path]:
    """Write `model` with the same bytes for the same graph.

    Args:
        model: It is not changed.
        path: The model file; large models get `<name>.data` beside it.
        external_above: Weights of more bytes than this go into the data file.

    Returns:
        The files written, the model file first.

    Raises:
        WriteError: The disk is full or the place is not writable.
    """
    try:
        if _weight_bytes(model) <= external_above:
            path.write_bytes(to_bytes(model))
            return [path]
        data_path = path.with_name(f"{path.name}.data")
        slim = _move_weights(model, data_path)
        path.write_bytes(to_bytes(slim))
        return [path, data_path]
    except OSError as error:
        raise WriteError(f"cannot write {path.name}: {error.strerror}") from error


def _weight_bytes(model: ir.Model) -> int:
    tensors = (v.const_value for g in graphs_of(model) for v in g.initializers.values())
    return sum(t.nbytes for t in tensors if t is not None)


def _move_weights(model: ir.Model, data_path: Path) -> ir.Model:
    """Write the weights to `data_path`; return a copy of the model that points there."""
    slim = model.clone()
    with data_path.open("wb") as file:
        for graph in graphs_of(slim):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes <= _INLINE_BYTES:
                    continue
                file.write(b"\0" * (-file.tell() % _ALIGNMENT))
                offset = file.tell()
                file.write(tensor.tobytes())
                value.const_value = _elsewhere(tensor, data_path.name, offset)
    return slim


def clone(model: ir.Model) -> ir.Model:
    """Copy nodes and values; weights are shared. The nodes must be in order."""
    return model.clone()


# ---- looking at a model without its weights


def without_weights(model: ir.Model, *, keep_bytes: int = _KEEP_BYTES) -> ir.Model:
    """Copy `model` with the data of large initializers left out, types and dims kept.

    The copy is for looking at: it cannot be run.

    Args:
        model: It is not changed.
        keep_bytes: Initializers up to this size keep their data; shapes may follow from them.
    """
    light = model.clone()
    for graph in light.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > keep_bytes:
                value.const_value = _elsewhere(tensor, "absent", 0)
    return light


def _elsewhere(tensor: ir.TensorProtocol, location: str, offset: int) -> ir.ExternalTensor:
    shape = ir.Shape(tensor.shape.numpy())
    name = tensor.name or ""
    return ir.ExternalTensor(location, offset, tensor.nbytes, tensor.dtype, shape=shape, name=name)


def infer_values(model: ir.Model, *, strict: bool = False) -> list[dict[str, ir.TypeAndShape]]:
    """Infer types and shapes of inner values from inputs and weights alone.

    Args:
        model: It is not changed; what its inner values say is not used.
        strict: Whether a contradiction between nodes raises.

    Returns:
        One table by value name for each graph, in the order of `walk.all_graphs`.

    Raises:
        UnsupportedModelError: In strict mode, nodes contradict each other.
    """
    light = without_weights(model)
    for graph in light.graphs():
        for value in (v for node in graph for v in node.outputs):
            value.shape = None
            if not value.is_graph_output():
                value.type = None
    proto = ir.to_proto(light)
    try:
        inferred = onnx.shape_inference.infer_shapes(
            proto, check_type=strict, strict_mode=strict, data_prop=True
        )
    except onnx.shape_inference.InferenceError as error:
        raise UnsupportedModelError(_inference_problem(str(error))) from error
    return [_table(graph) for graph in _graph_protos(inferred.graph)]


def _inference_problem(text: str) -> str:
    """Make one short line of what the inference of onnx says."""
    line = text.strip().splitlines()[0]
    for noise in ("[ShapeInferenceError] ", "[TypeInferenceError] ", "Inference error(s): "):
        line = line.replace(noise, "")
    return f"shapes or types of nodes do not fit: {line[:200]}"


def _table(graph: onnx.GraphProto) -> dict[str, ir.TypeAndShape]:
    return {info.name: _type_and_shape(info.type) for info in graph.value_info}


def _type_and_shape(proto: onnx.TypeProto) -> ir.TypeAndShape:
    return ir.TypeAndShape(
        ir.serde.deserialize_type_proto_for_type(proto),
        ir.serde.deserialize_type_proto_for_shape(proto),
    )


def operator_known(domain: str, op_type: str, version: int) -> bool:
    """Tell whether the standard defines the operator in that version of its domain."""
    return bool(onnx.defs.has(op_type, version, domain))


def operator_deprecated(domain: str, op_type: str, version: int) -> bool:
    """Tell whether the standard keeps the operator in that version only as deprecated."""
    known = operator_known(domain, op_type, version)
    return known and bool(onnx.defs.get_schema(op_type, version, domain).deprecated)


def check(model: ir.Model) -> list[str]:
    """Compare each node with its operator's definition; return the problems as short texts.

    Nodes that hold graphs are left out (their inner nodes are not), so are operators that the
    standard does not define or only keeps as deprecated.
    """
    context = onnx.checker.DEFAULT_CONTEXT.__class__()
    context.ir_version = model.ir_version or 10
    context.opset_imports = dict(model.opset_imports)
    problems: list[str] = []
    for node in all_nodes(model.graph):
        if _holds_graph(node) or not _has_schema(node, model):
            continue
        try:
            onnx.checker.check_node(ir.serde.serialize_node(node), context)
        except onnx.checker.ValidationError as error:
            problems.append(f"node {node.name!r} ({node.op_type}): {_root_cause(error)}")
    return problems


def _holds_graph(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(a.type in kinds for a in node.attributes.values())


def _has_schema(node: ir.Node, model: ir.Model) -> bool:
    version = model.opset_imports.get(node.domain)
    if version is None or not operator_known(node.domain, node.op_type, version):
        return False
    return not operator_deprecated(node.domain, node.op_type, version)


def evaluate(node: ir.Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Compute the first output of one node with the reference implementation of onnx.

    Args:
        node: A node of the default domain, without subgraphs.
        arrays: One per input; None for an input that is left out.

    Returns:
        The output, or None when the reference cannot compute it.
    """
    from onnx.reference import ReferenceEvaluator

    names = [v.name or "" if v is not None else "" for v in node.inputs]
    feeds = {name: a for name, a in zip(names, arrays, strict=True) if a is not None}
    version = node.graph.opset_imports.get("") if node.graph is not None else None
    try:
        runner = ReferenceEvaluator(ir.serde.serialize_node(node), opsets={"": version or 21})
        results = runner.run(None, feeds)
        return np.asarray(results[0]) if isinstance(results, list) else None
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
