"""Checks of a parsed file before the graph is made: the parser believes whatever it finds.

The messages are described by what is read of them, so that this module needs no protobuf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import onnx_ir as ir

__all__ = ["tensor_problem", "text_problem"]

_EXTERNAL = 1
_STRING_FIELD = 9


class _Descriptor(Protocol):
    name: str


class _Field(Protocol):
    name: str
    type: int
    message_type: object | None


class _Message(Protocol):
    DESCRIPTOR: _Descriptor

    def ListFields(self) -> Iterable[tuple[_Field, object]]: ...  # noqa: N802 - protobuf's name


class _Entry(Protocol):
    key: str
    value: str


class _Tensor(Protocol):
    data_type: int
    data_location: int
    dims: Sequence[int]
    external_data: Sequence[_Entry]
    raw_data: bytes
    string_data: Sequence[bytes]
    int32_data: Sequence[int]
    int64_data: Sequence[int]
    uint64_data: Sequence[int]
    float_data: Sequence[float]
    double_data: Sequence[float]

    def HasField(self, name: str) -> bool: ...  # noqa: N802 - protobuf's name


def text_problem(message: _Message) -> str:
    """Find a name that is no text, or an attribute without a type; nothing when all is well.

    The parser hands bytes that are no UTF-8 on as bytes, and libraries then fail anywhere.
    """
    stack = [message]
    while stack:
        current = stack.pop()
        fields = dict(_fields(current))
        if current.DESCRIPTOR.name == "AttributeProto" and not fields.keys() & {
            "type",
            "ref_attr_name",
        }:
            return f"attribute {fields.get('name', [''])[0]!r} has no type"
        for name, items in fields.items():
            bad = next((t for t in items if isinstance(t, bytes)), None)
            if bad is not None:
                return f"a {name} is not valid text: {bad[:60]!r}"
            stack.extend(i for i in items if hasattr(i, "ListFields"))  # type: ignore[misc]
    return ""


def _fields(message: _Message) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield texts and messages below `message`; not the data of tensors, nor byte fields."""
    for field, content in message.ListFields():
        if field.message_type is None and field.type != _STRING_FIELD and field.name != "type":
            continue
        single = isinstance(content, str | bytes | int) or hasattr(content, "ListFields")
        yield field.name, [content] if single else list(content)  # type: ignore[call-overload]


def tensor_problem(tensor: _Tensor) -> str:
    """Compare type and dims with the data there is; nothing when they fit."""
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        return f"has the unknown element type {tensor.data_type}"
    if dtype == ir.DataType.UNDEFINED:
        return "has no element type"
    if any(d < 0 for d in tensor.dims):
        return f"has the dims {list(tensor.dims)}"
    if tensor.data_location == _EXTERNAL:
        return _location_problem(tensor, dtype)
    count = math.prod(tensor.dims)
    if dtype == ir.DataType.STRING:
        held, needed = len(tensor.string_data), count
    elif tensor.HasField("raw_data"):
        held, needed = len(tensor.raw_data), -(-count * dtype.bitwidth // 8)
    else:
        held, needed = _typed_elements(tensor, dtype), count
    return "" if held == needed else f"holds {held} elements or bytes where its dims need {needed}"


def _typed_elements(tensor: _Tensor, dtype: ir.DataType) -> int:
    if dtype.bitwidth < 8:
        per_field = 8 // dtype.bitwidth
        count = math.prod(tensor.dims)
        stored = len(tensor.int32_data)
        return count if stored in (-(-count // per_field), count) else stored * per_field
    stored = len(tensor.float_data) + len(tensor.int32_data) + len(tensor.int64_data)
    stored += len(tensor.double_data) + len(tensor.uint64_data)
    parts = 2 if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128) else 1
    return stored // parts


def _location_problem(tensor: _Tensor, dtype: ir.DataType) -> str:
    if dtype == ir.DataType.STRING:
        return "holds strings in external data, which the format does not allow"
    entries = {e.key: e.value for e in tensor.external_data}
    if "location" not in entries:
        return "has external data without a location"
    for key in ("offset", "length"):
        if key in entries and not entries[key].isdecimal():
            return f"has external data with the {key} {entries[key]!r}"
    return ""
