"""Compare data with what the model asks for, and refuse what does not fit by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optcc.errors import ConfigError
from optcc.graph.signature import Dim, Signature, TensorSpec
from optcc.passkit.contract import Feed

__all__ = ["batch_of", "check_feed", "check_rows", "is_batched", "samples_in", "typed"]


def is_batched(signature: Signature) -> bool:
    """Whether axis 0 of every input is the batch, so that samples can be cut apart and joined.

    Inputs whose first dims differ (recurrent states) or that have no dims are not batched.
    """
    firsts = [_first(spec) for spec in signature.inputs]
    if not firsts or None in firsts:
        return False
    lone_vectors = all(s.dims is not None and len(s.dims) == 1 for s in signature.inputs)
    fixed = {f for f in firsts if isinstance(f, int)}
    if lone_vectors and fixed - {1}:
        return False
    return len(fixed) == 0 or (len(fixed) == 1 and all(isinstance(f, int) for f in firsts))


def batch_of(signature: Signature) -> int | None:
    """Return the fixed batch of a batched model, or None when it is free."""
    first = _first(signature.inputs[0])
    return first if isinstance(first, int) else None


def samples_in(feed: Feed, signature: Signature) -> int:
    """Count the samples in one complete feed; 1 when its inputs share no batch axis."""
    sizes = {len(a) for a in feed.values()} if is_batched(signature) else {1}
    return sizes.pop() if len(sizes) == 1 else 1


def _first(spec: TensorSpec) -> int | str | None:
    if spec.dims is None:
        return "free"
    if not spec.dims:
        return None
    return first if isinstance(first := spec.dims[0], int) and first >= 0 else "free"


def _check_names(found: Iterable[str], signature: Signature, where: str) -> None:
    """Refuse data that lacks an input or holds an array that is none.

    Raises:
        ConfigError: Naming the input and what there is.
    """
    names, wanted = sorted(found), [s.name for s in signature.inputs]
    held = ", ".join(names) or "nothing"
    for name in wanted:
        if name not in names:
            raise ConfigError(
                f"{where} has no array for input {name!r} (it holds {held})",
                where=where,
                hint=f"name the arrays after the model's inputs: {', '.join(wanted)}",
            )
    for name in names:
        if name not in wanted:
            raise ConfigError(
                f"array {name!r} in {where} is no input of the model",
                where=where,
                hint=f"the inputs are {', '.join(wanted)}; an array of labels is called 'labels'",
            )


def check_feed(feed: Feed, signature: Signature, where: str) -> Feed:
    """Check one complete feed, batch included, and return it in signature order.

    Raises:
        ConfigError: Naming the array whose name, dtype, shape or value does not fit.
    """
    _check_names(feed, signature, where)
    checked: Feed = {}
    for spec in signature.inputs:
        array = typed(feed[spec.name], spec, where)
        if spec.dims is not None and not _fits(array.shape, spec.dims):
            raise _wrong_shape(spec, array.shape, where, "one file or feed is one complete input")
        if array.size == 0:
            raise ConfigError(f"input {spec.name!r} in {where} holds no sample", where=where)
        checked[spec.name] = array
    return checked


def check_rows(
    shapes: Mapping[str, Sequence[int]], signature: Signature, where: str
) -> tuple[int, frozenset[str]]:
    """Check arrays that hold samples on axis 0.

    Returns:
        The number of samples, and the names of the inputs whose one sample came without the axis.
    """
    _check_names(shapes, signature, where)
    bare, counts = set(), {}
    for spec in signature.inputs:
        shape = tuple(shapes[spec.name])
        if spec.dims is not None and len(shape) == len(spec.dims) - 1:
            shape = (1, *shape)
            bare.add(spec.name)
        if not shape or (spec.dims is not None and not _fits(shape, (None, *spec.dims[1:]))):
            raise _wrong_shape(spec, tuple(shapes[spec.name]), where, "axis 0 counts the samples")
        counts[spec.name] = shape[0]
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{n}: {c}" for n, c in counts.items())
        raise ConfigError(f"the inputs in {where} differ in samples ({text})", where=where)
    samples = next(iter(counts.values()))
    if samples == 0:
        raise ConfigError(f"{where} holds no sample (axis 0 is empty)", where=where)
    return samples, frozenset(bare)


def typed(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    """Return `array` in the native type of `spec`, refusing any other type and NaN or Inf."""
    wanted = np.dtype(object) if spec.dtype == ir.DataType.STRING else _numpy_of(spec)
    array = _native(array, wanted)
    if array.dtype != wanted:
        raise ConfigError(
            f"input {spec.name!r} in {where} is {array.dtype}, the model wants {wanted}",
            where=where,
            hint=f"convert it as in training and save it with .astype(numpy.{wanted})",
        )
    if spec.dtype is not None and spec.dtype.is_floating_point():
        _refuse_non_finite(array, spec.name, where)
    return array


def _native(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    if array.dtype.kind in "UT" and wanted.hasobject:
        return array.astype(object)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize and wanted.kind == "V":
        return array.view(wanted)  # npz files keep bfloat16 as plain bytes
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _numpy_of(spec: TensorSpec) -> np.dtype:
    if spec.dtype is None:
        raise ConfigError(f"input {spec.name!r} of the model has no tensor type")
    return np.dtype(spec.dtype.numpy())


def _refuse_non_finite(array: np.ndarray, name: str, where: str) -> None:
    finite = np.isfinite(array)
    if finite.all():
        return
    index = tuple(int(i) for i in np.argwhere(~finite)[0])
    kind = "NaN" if np.isnan(array[index]) else "Inf"
    raise ConfigError(
        f"input {name!r} in {where} holds {kind} (first at {list(index)})",
        where=where,
        hint="remove or repair that sample",
    )


def _fits(shape: Sequence[int], dims: Sequence[Dim]) -> bool:
    """Compare sizes with dims; some exporters write -1 for a free dim."""
    pairs = zip(shape, dims, strict=False)
    return len(shape) == len(dims) and all(
        s == d for s, d in pairs if isinstance(d, int) and d >= 0
    )


def _wrong_shape(spec: TensorSpec, shape: tuple[int, ...], where: str, rule: str) -> ConfigError:
    dims = "x".join(str(d) if d is not None else "?" for d in spec.dims or ())
    got = "x".join(map(str, shape)) or "a scalar"
    return ConfigError(
        f"input {spec.name!r} in {where} is {got}, the model wants {dims}",
        where=where,
        hint=f"{rule}; see --shapes for free dims",
    )
