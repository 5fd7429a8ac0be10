"""Small valid models from a seed: the same seed gives the same bytes, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optcc.graph.io import parse_model, to_bytes
from optcc.passkit.contract import Feed
from tests.models.generated_kinds import KINDS
from tests.models.maker import Maker

__all__ = ["Generated", "generate", "random_feeds"]

BATCHES = (1, 2, 3, 5)
SCALES = (1.0, 3.0, 0.3)


@dataclass(frozen=True)
class Generated:
    """One model.

    Attributes:
        kind: A key of `KINDS`.
        dtype: Its float type.
    """

    seed: int
    kind: str
    dtype: str
    model: ir.Model

    @property
    def label(self) -> str:
        """What a table or a failing test calls it."""
        return f"{self.kind}-{self.dtype}-{self.seed}"


def generate(seed: int) -> Generated:
    """Make the model of `seed`; seven seeds in a row give every kind once."""
    kind = list(KINDS)[seed % len(KINDS)]
    build, dtypes = KINDS[kind]
    dtype = dtypes[int(np.random.default_rng([seed, 1]).integers(len(dtypes)))]
    data = to_bytes(build(Maker(seed, dtype)))  # a file holds attributes in single precision
    return Generated(seed, kind, dtype, parse_model(data, Path(f"{kind}.onnx")))


def random_feeds(model: ir.Model, count: int, seed: int = 0) -> Iterator[Feed]:
    """Draw feeds of several batch sizes and magnitudes."""
    rng = np.random.default_rng([seed, 2])
    for k in range(count):
        batch, scale = BATCHES[k % len(BATCHES)], SCALES[k % len(SCALES)]
        yield {v.name or "": _draw(v, batch, scale, rng, k) for v in model.graph.inputs}


def _draw(
    value: ir.Value, batch: int, scale: float, rng: np.random.Generator, k: int
) -> np.ndarray:
    assert value.shape is not None
    assert value.dtype is not None
    dims = [d if isinstance(d, int) else batch for d in value.shape.dims]
    if value.dtype == ir.DataType.BOOL:
        return np.full(dims, k // 2 % 2 == 0)
    return np.asarray(rng.standard_normal(dims) * scale).astype(value.dtype.numpy())
