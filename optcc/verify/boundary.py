"""Where a region begins: at values of which it is known what they may hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.graph.walk import outer_values
from optcc.verify.draw import guess_seen
from optcc.verify.numeric import is_float
from optcc.verify.observe import Observations, Seen, see

__all__ = ["Boundary"]

_MOST_STEPS = 400


class Boundary:
    """Finds the edge of a region and what flows over it."""

    def __init__(self, observations: Observations) -> None:
        self._seen = dict(observations.seen)
        self._fixed = observations.fixed
        self.probes = max(2, len(observations.probes))

    def of(self, inputs: Sequence[ir.Value]) -> tuple[ir.Value, ...] | str:
        """Return values at which a region with these inputs can begin.

        An input that was never seen (inside a subgraph, or made by an earlier rewrite) is replaced
        by what its producer reads, until everything was seen.

        Returns:
            The values, or why there are none.
        """
        edge: dict[ir.Value, None] = {}
        visited: set[ir.Value] = set()
        pending = list(reversed(inputs))
        while pending:
            value = pending.pop()
            if value in visited or is_constant(value):
                continue
            visited.add(value)
            producer = value.producer()
            if self.seen(value) is not None:
                edge[value] = None
            elif producer is None:
                return f"it is not known what {value.name!r} may hold"
            else:
                reads = [v for v in (*producer.inputs, *outer_values(producer)) if v is not None]
                pending.extend(reversed(reads))
            if len(visited) > _MOST_STEPS:
                return f"too many nodes lie between {inputs[0].name!r} and a value that was seen"
        return tuple(edge)

    def seen(self, value: ir.Value) -> tuple[Seen, ...] | None:
        """Return what `value` was seen to hold, one entry per probe, or a guess for a formal input.

        An initializer that is a graph input counts with its default.
        """
        found = _typed(self._seen.get(value.name or ""), value)
        if found is not None and len(found) == self.probes:
            return found
        if value.producer() is not None:
            return None
        if value.is_initializer() and value.const_value is not None:
            return (see(value.const_value.numpy()),) * self.probes
        return guess_seen(value, self.probes)

    def is_fixed(self, value: ir.Value) -> bool:
        """Tell whether `value` cannot depend on the data that the model is fed."""
        return (value.name or "") in self._fixed

    def learn(self, value: ir.Value, arrays: Sequence[np.ndarray]) -> None:
        """Remember results for a value that was not seen before."""
        if not value.name or value.name in self._seen or not arrays:
            return
        entries = [see(np.asarray(a)) for a in arrays]
        entries += [entries[-1]] * (self.probes - len(entries))
        self._seen[value.name] = tuple(entries)


def _typed(found: tuple[Seen, ...] | None, value: ir.Value) -> tuple[Seen, ...] | None:
    """Give floats the type that a rewrite has given to `value` since they were seen."""
    if not found or value.dtype is None or value.dtype == ir.DataType.STRING:
        return found
    dtype = np.dtype(value.dtype.numpy())
    if dtype == found[0].dtype:
        return found
    if not (is_float(dtype) and is_float(found[0].dtype)):
        return None
    return tuple(_cast(s, dtype) for s in found)


def _cast(seen: Seen, dtype: np.dtype) -> Seen:
    with np.errstate(over="ignore"):
        value = None if seen.value is None else seen.value.astype(dtype)
        return Seen(dtype, seen.shape, value, seen.sample.astype(dtype))
