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
    for chunk in value_chunks(model, {*names, *seen}):
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
    outputs: list[Feed] = []
    with open_model(model, also=chunk) as session:
        for probe in probes:
            results = session.run(probe, list(dict.fromkeys([*names, *chunk])))
            outputs.append({n: results[n] for n in names})
            for name, array in results.items():
                entries = seen.setdefault(name, [])
                if isinstance(array, np.ndarray) and len(entries) < len(outputs):
                    entries.append(see(array))
    return outputs


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


def value_chunks(model: ir.Model, have: set[str]) -> Iterator[list[str]]:
    """Group the inner values so that one run returns about `_CHUNK_BYTES`."""
    counts = Counter(v.name for g in all_graphs(model.graph) for v in all_values(g))
    chunk: list[str] = []
    size = 0
    for node in model.graph:
        for value in node.outputs:
            name = value.name or ""
            if not name or name in have or counts[name] > 1 or not _is_tensor(value):
                continue
            chunk.append(name)
            size += _estimate(value)
            if size > _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _estimate(value: ir.Value) -> int:
    if value.shape is None:
        return _UNKNOWN_BYTES
    dims = [d if isinstance(d, int) else 4 for d in value.shape.dims]
    return int(np.prod(dims, dtype=np.int64)) * 4


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
