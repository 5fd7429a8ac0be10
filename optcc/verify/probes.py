"""Inputs for the whole model: real samples where there are some, else made by type and use.

Two sizes per dynamic dim. A batch dim (the first, from 1) gets 1 and 3; other dims get the least
and the typical size of the profile, because sizes in between may not fit the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.errors import BackendError
from optcc.graph.signature import Signature, TensorSpec
from optcc.passkit.contract import Feed
from optcc.verify.bounds import InputBounds, bounds_of
from optcc.verify.reference import open_model

__all__ = ["make_probes", "probe_sizes"]

_SECOND_BATCH = 3

Sizes = Mapping[str, tuple[int, ...]]


def make_probes(
    model: ir.Model,
    signature: Signature,
    profile: ShapeProfile,
    samples: Iterable[Feed] = (),
    seed: int = 0,
) -> list[Feed]:
    """Make two feeds that the model runs on and that differ, in size where that is allowed.

    Args:
        model: Only run and looked at.
        signature: Its inputs.
        profile: Shapes that it is built for.
        samples: Real feeds; the first two give the contents, cut or repeated to the sizes.
        seed: Decides everything that is drawn.

    Returns:
        Two feeds; fewer or none when the runtime refuses what could be made.
    """
    real = list(islice(iter(samples), 2))
    bounds = {s.name: bounds_of(model, s) for s in signature.inputs}
    probes: list[Feed] = []
    with open_model(model) as session:
        for sizes in _two_sizes(signature, profile):
            turn = len(probes)
            for contents in _contents(signature, bounds, sizes, real, (seed, turn)):
                try:
                    session.run(contents)
                except BackendError:
                    continue
                probes.append(contents)
                break
            if len(probes) == 2:
                break
    return probes


def _two_sizes(signature: Signature, profile: ShapeProfile) -> Iterator[Sizes]:
    """Yield sizes to try: the wanted two first, then what else the profile offers."""
    offers = probe_sizes(signature, profile)
    yield from offers
    yield from offers  # a size that works twice is better than one probe


def probe_sizes(signature: Signature, profile: ShapeProfile) -> list[Sizes]:
    """Return assignments of a shape to each input, the most telling first."""
    shapes = {i.name: i for i in profile.inputs}
    least = {n: i.min for n, i in shapes.items()}
    second = _second(signature, shapes)
    typical = {n: i.opt for n, i in shapes.items()}
    largest = {n: i.max for n, i in shapes.items()}
    unique: list[Sizes] = []
    for sizes in (least, second, typical, largest):
        if sizes not in unique:
            unique.append(sizes)
    return unique


def _second(signature: Signature, shapes: Mapping[str, InputShapes]) -> Sizes:
    symbols: dict[str, int] = {}
    for spec in signature.inputs:
        shape = shapes.get(spec.name)
        if shape is None or not shape.min or shape.min[0] == shape.max[0]:
            continue
        name = _symbol(spec, 0)
        if shape.min[0] == 1 and name is not None:
            symbols[name] = min(_SECOND_BATCH, shape.max[0])
    return {
        spec.name: _resized(spec, shapes[spec.name], symbols)
        for spec in signature.inputs
        if spec.name in shapes
    }


def _resized(spec: TensorSpec, shape: InputShapes, symbols: Mapping[str, int]) -> tuple[int, ...]:
    dims: list[int] = []
    for axis, (low, typical, high) in enumerate(zip(shape.min, shape.opt, shape.max, strict=True)):
        name = _symbol(spec, axis)
        if name is not None and name in symbols:
            dims.append(symbols[name])
        elif axis == 0 and low == 1 and high > 1:
            dims.append(min(_SECOND_BATCH, high))
        else:
            dims.append(typical if typical > low else high)
    return tuple(dims)


def _symbol(spec: TensorSpec, axis: int) -> str | None:
    if spec.dims is None or axis >= len(spec.dims):
        return None
    dim = spec.dims[axis]
    return dim if isinstance(dim, str) and dim else None


def _contents(
    signature: Signature,
    bounds: Mapping[str, InputBounds],
    sizes: Sizes,
    real: Sequence[Feed],
    seed_and_turn: tuple[int, int],
) -> Iterator[Feed]:
    """Yield feeds to try at these sizes: real, drawn, then as plain as can be."""
    first, turn = seed_and_turn
    seed = first + turn
    if real:
        sample = real[seed % len(real)]
        if all(s.name in sample for s in signature.inputs):
            fitted = {s.name: _fit(sample[s.name], sizes.get(s.name)) for s in signature.inputs}
            yield fitted
            yield {s.name: sample[s.name] for s in signature.inputs}
    for attempt in range(2):
        rng = np.random.default_rng([seed, attempt])
        drawn = {
            s.name: bounds[s.name].draw(sizes.get(s.name, ()), rng, turn) for s in signature.inputs
        }
        if all(a is not None for a in drawn.values()):
            yield {n: a for n, a in drawn.items() if a is not None}
    plain = {s.name: bounds[s.name].plain(sizes.get(s.name, ())) for s in signature.inputs}
    if all(a is not None for a in plain.values()):
        yield {n: a for n, a in plain.items() if a is not None}


def _fit(array: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    """Cut or repeat `array` along each axis until it has `shape`."""
    if shape is None or len(shape) != array.ndim or 0 in array.shape:
        return array
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis=axis)
    return array
