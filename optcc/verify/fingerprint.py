"""A digest of what a set of values computes: equal digests prove equal bits without a run.

Names, Identity nodes, the order of independent nodes, and whether a constant is an initializer or
a Constant node do not count. Unequal digests prove nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.graph.walk import outer_values

__all__ = ["Fingerprints"]

_CONTENT_BELOW_BYTES = 1 << 16


class Fingerprints:
    """Makes fingerprints that can be compared with each other.

    Large tensors count by identity, so that no large file is read; two of them with equal content
    therefore only make a fingerprint differ needlessly.
    """

    def __init__(self) -> None:
        self._large: dict[int, tuple[int, object]] = {}

    def of(self, outputs: Sequence[ir.Value], boundary: Collection[ir.Value]) -> bytes:
        """Return the digest of `outputs` as functions of `boundary`, which counts by position."""
        known = {v: b"in%d" % k for k, v in enumerate(dict.fromkeys(boundary))}
        return _digest(*self._all(outputs, known))

    def of_graph(self, graph: ir.Graph) -> bytes:
        """Return the digest of a whole graph; names, types and dims of inputs and outputs count."""
        signature = [
            f"{v.name}:{v.type}:{v.shape}".encode() for v in (*graph.inputs, *graph.outputs)
        ]
        opsets = repr(sorted(graph.opset_imports.items())).encode()
        return _digest(opsets, *signature, self.of(graph.outputs, graph.inputs))

    def _all(self, outputs: Sequence[ir.Value], known: dict[ir.Value, bytes]) -> list[bytes]:
        for value in outputs:
            self._visit(value, known)
        return [known[v] for v in outputs]

    def _visit(self, wanted: ir.Value, known: dict[ir.Value, bytes]) -> None:
        stack = [wanted]
        while stack:
            value = stack[-1]
            producer = value.producer()
            if value in known:
                stack.pop()
            elif is_constant(value):
                known[stack.pop()] = self._constant(value)
            elif producer is None:
                known[stack.pop()] = f"free {value.name}".encode()
            else:
                missing = [v for v in _reads(producer) if v not in known]
                if missing:
                    stack.extend(missing)
                else:
                    self._node(producer, known)

    def _node(self, node: ir.Node, known: dict[ir.Value, bytes]) -> None:
        inputs = [b"-" if v is None else known[v] for v in node.inputs]
        while inputs and inputs[-1] == b"-":
            inputs.pop()
        if node.op_type == "Identity" and node.domain == "" and inputs:
            known[node.outputs[0]] = inputs[0]
            return
        attributes = [
            self._attribute(a, known) for a in sorted(node.attributes.values(), key=_name_of)
        ]
        kind = f"{node.domain}:{node.op_type}:{node.overload}".encode()
        if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial"):
            kind += f" {node.name}".encode()
        body = _digest(kind, *inputs, b"|", *attributes)
        for k, value in enumerate(node.outputs):
            known[value] = _digest(body, str(k).encode())

    def _attribute(self, attribute: ir.Attr, known: dict[ir.Value, bytes]) -> bytes:
        name = f"{attribute.name}:{attribute.type}".encode()
        if attribute.is_ref():
            return _digest(name, b"ref", repr(attribute.ref_attr_name).encode())
        if attribute.type == ir.AttributeType.GRAPH:
            return _digest(name, self._body(attribute.as_graph(), known))
        if attribute.type == ir.AttributeType.GRAPHS:
            return _digest(name, *(self._body(g, known) for g in attribute.as_graphs()))
        if attribute.type == ir.AttributeType.TENSOR:
            return _digest(name, self._tensor(attribute.as_tensor()))
        return _digest(name, repr(attribute.value).encode())

    def _body(self, graph: ir.Graph, known: dict[ir.Value, bytes]) -> bytes:
        inner = dict(known)
        inner.update({v: b"formal%d" % k for k, v in enumerate(graph.inputs)})
        return _digest(*self._all(graph.outputs, inner))

    def _constant(self, value: ir.Value) -> bytes:
        if value.const_value is not None:
            return self._tensor(value.const_value)
        array = constant_of(value)
        if array is None or array.dtype.hasobject:
            return f"constant {value.name}".encode()
        return self._tensor(ir.tensor(array))

    def _tensor(self, tensor: ir.TensorProtocol) -> bytes:
        head = f"{tensor.dtype}:{tensor.shape}".encode()
        if tensor.dtype == ir.DataType.STRING or tensor.nbytes > _CONTENT_BELOW_BYTES:
            number, _ = self._large.setdefault(id(tensor), (len(self._large), tensor))
            return _digest(head, b"large%d" % number)
        return _digest(head, tensor.tobytes())


def _reads(node: ir.Node) -> list[ir.Value]:
    return [v for v in (*node.inputs, *outer_values(node)) if v is not None]


def _name_of(attribute: ir.Attr) -> str:
    return attribute.name


def _digest(*parts: bytes) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()
