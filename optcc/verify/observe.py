"""Run a whole model once per probe and keep what a region check must know about its values.

Of each value: dtype, shape, and the value itself when it is small or integer; of a large float
value a few hundred elements, spread evenly, that stand for its distribution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.walk import all_graphs, all_values, outer_values
from optcc.passkit.contract import Feed
from optcc.verify.reference import open_model
from optcc.verify.sampling import LEAST_OPSET, with_samples

__all__ = ["Observations", "Seen", "observe", "see", "value_chunks"]

_KEEP_FLOATS = 512
_KEEP_OTHERS = 1 << 14
_CHUNK_BYTES = 64 << 20
_UNKNOWN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What one value was in one probe.

    Attributes:
        value: All of it when it is small, else None.
        sample: Elements that stand for it, flat; at least one unless the value is empty.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    value: np.ndarray | None
    sample: np.ndarray


@dataclass(frozen=True, slots=True)
class Observations:
    """What was seen, by value name.

    Attributes:
        probes: Feeds of the whole model.
        outputs: What the whole model gave for each of them.
        seen: One entry per probe for each value that could be observed.
        fixed: Names of values that depend on the shapes of the inputs at most.
    """

    probes: tuple[Feed, ...] = ()
    outputs: tuple[Feed, ...] = ()
    seen: Mapping[str, tuple[Seen, ...]] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()


def observe(model: ir.Model, probes: Sequence[Feed]) -> Observations:
    """Run `model` on each probe.

    A value that the runtime cannot return is left out; so are values inside subgraphs and values
    whose name occurs in more than one graph.

    Raises:
        BackendError: The runtime refuses the model or a probe.
    """
    if not probes:
        return Observations()
    names = [v.name or "" for v in model.graph.outputs]
    seen = {n: [see(p[n]) for p in probes] for n in probes[0]}
    outputs: list[Feed] = []
    for chunk in value_chunks(model, {*names, *seen}, most=_most(model)):
        outputs = _observe_chunk(model, probes, names, chunk, seen) or outputs
    if not outputs:
        outputs = _run(model, probes, names, (), seen)
    complete = {n: tuple(s) for n, s in seen.items() if len(s) == len(probes)}
    fixed = frozenset(_fixed(model.graph))
    return Observations(tuple(probes), tuple(outputs), complete, fixed)


def _run(
    model: ir.Model,
    probes: Sequence[Feed],
    names: Sequence[str],
    chunk: Sequence[str],
    seen: dict[str, list[Seen]],
) -> list[Feed]:
    """Run every probe once; keep the outputs, and what was seen of them and of `chunk`."""
    if chunk and model.graph.opset_imports.get("", 0) >= LEAST_OPSET:
        return _run_sampled(model, probes, names, chunk, seen)
    outputs: list[Feed] = []
    with open_model(model, also=chunk) as session:
        for probe in probes:
            results = session.run(probe, list(dict.fromkeys([*names, *chunk])))
            outputs.append({n: results[n] for n in names})
            for name, array in results.items():
                if isinstance(array, np.ndarray):
                    _enter(seen, name, see(array), len(outputs))
    return outputs


def _run_sampled(
    model: ir.Model,
    probes: Sequence[Feed],
    names: Sequence[str],
    chunk: Sequence[str],
    seen: dict[str, list[Seen]],
) -> list[Feed]:
    """Run with samples of the values of `chunk` as outputs."""
    outputs: list[Feed] = []
    sampled = with_samples(model, chunk, _KEEP_FLOATS, _KEEP_OTHERS)
    wanted = [*names, *(n for pair in sampled.outputs.values() for n in pair)]
    with open_model(sampled.model) as session:
        for probe in probes:
            results = session.run(probe, wanted)
            outputs.append({n: results[n] for n in names})
            for name in names:
                if isinstance(results[name], np.ndarray):
                    _enter(seen, name, see(results[name]), len(outputs))
            for name, (dims, some) in sampled.outputs.items():
                shape = tuple(int(d) for d in results[dims])
                _enter(seen, name, _from_sample(results[some], shape), len(outputs))
    return outputs


def _enter(seen: dict[str, list[Seen]], name: str, found: Seen, probes: int) -> None:
    """Keep what was seen in this probe, unless an earlier run has told it."""
    entries = seen.setdefault(name, [])
    if len(entries) < probes:
        entries.append(found)


def _from_sample(some: np.ndarray, shape: tuple[int, ...]) -> Seen:
    """Return what was seen of a value of `shape` from its evenly spread elements."""
    if some.size == int(np.prod(shape, dtype=np.int64)):
        return see(some.reshape(shape))
    return Seen(some.dtype, shape, None, see(some).sample)


def _observe_chunk(
    model: ir.Model,
    probes: Sequence[Feed],
    names: Sequence[str],
    chunk: Sequence[str],
    seen: dict[str, list[Seen]],
) -> list[Feed]:
    """Run with the values of `chunk` as outputs; halve it while the runtime refuses."""
    try:
        return _run(model, probes, names, chunk, seen)
    except BackendError:
        for name in chunk:
            seen.pop(name, None)
        if len(chunk) == 1:  # one value that cannot be returned must not hide the others
            return []
    half = len(chunk) // 2
    parts = [_observe_chunk(model, probes, names, c, seen) for c in (chunk[:half], chunk[half:])]
    return parts[0] or parts[1]


def see(array: np.ndarray) -> Seen:
    """Keep what matters of one value in one probe."""
    flat = array.reshape(-1)
    limit = _KEEP_FLOATS if array.dtype.kind not in "biu" else _KEEP_OTHERS
    if array.size <= limit:
        return Seen(array.dtype, array.shape, array.copy(), flat.copy())
    spread = np.linspace(0, array.size - 1, _KEEP_FLOATS).astype(np.int64)
    return Seen(array.dtype, array.shape, None, flat[spread])


def _most(model: ir.Model) -> int | None:
    """Return how many elements of a value one run returns at most; None for all."""
    sampled = model.graph.opset_imports.get("", 0) >= LEAST_OPSET
    return 2 * _KEEP_FLOATS if sampled else None


def value_chunks(
    model: ir.Model, have: set[str], *, most: int | None = None
) -> Iterator[list[str]]:
    """Group the inner values so that one run returns about `_CHUNK_BYTES`.

    Args:
        model: Its main graph is looked at.
        have: Names that are known already.
        most: Elements of each value that are returned; None for all.
    """
    counts = Counter(v.name for g in all_graphs(model.graph) for v in all_values(g))
    chunk: list[str] = []
    size = 0
    for node in model.graph:
        for value in node.outputs:
            name = value.name or ""
            if not name or name in have or counts[name] > 1 or not _is_tensor(value):
                continue
            chunk.append(name)
            size += _estimate(value, most)
            if size > _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _estimate(value: ir.Value, most: int | None) -> int:
    if value.shape is None:
        return _UNKNOWN_BYTES if most is None else 4 * most
    dims = [d if isinstance(d, int) else 4 for d in value.shape.dims]
    count = int(np.prod(dims, dtype=np.int64))
    return 4 * (count if most is None else min(count, most))


def _fixed(graph: ir.Graph) -> Iterator[str]:
    """Yield values that no content of an input reaches."""
    varying = set(graph.inputs)
    for node in graph:
        reads = [*node.inputs, *outer_values(node)]
        shape_only = node.op_type in ("Shape", "Size") and node.domain == ""
        random = node.op_type.startswith("Random")
        if random or (not shape_only and any(v in varying for v in reads)):
            varying.update(node.outputs)
        else:
            yield from (v.name for v in node.outputs if v.name)
