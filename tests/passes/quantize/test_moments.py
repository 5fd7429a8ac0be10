from __future__ import annotations

import numpy as np
import pytest

from optcc.passkit.testing import bare_context
from passes.quantize.moments import Reading, moments
from passes.quantize.windows import Geometry
from tests.models.layers import perceptron, samples, values_of


def _readings(low: float = -np.inf, high: float = np.inf) -> list[Reading]:
    sizes = {"x": 32, "relu_out": 40}
    return [Reading(n, Geometry(), size, low, high) for n, size in sizes.items()]


def test_each_half_is_the_mean_of_its_own_feeds() -> None:
    model = perceptron()
    feeds = samples(model, 5, N=3)
    seen = [values_of(model, f, ["x", "relu_out"]) for f in feeds]
    for reading, *halves in moments(model, bare_context(), feeds, _readings(), 999):
        for half, moment in enumerate(halves):
            rows = np.concatenate([v[reading.value] for v in seen[half::2]])
            assert moment.rows == len(rows)
            assert np.allclose(moment.mean()[0], rows.T @ rows / len(rows), atol=1e-5)


def test_values_are_clipped_to_what_the_grids_hold() -> None:
    model = perceptron()
    feeds = samples(model, 4, N=3)
    _, first, second = next(moments(model, bare_context(), feeds, _readings(-0.1, 0.2), 999))
    largest = max(float(half.mean().max()) for half in (first, second))
    assert 0.01 < largest <= 0.2**2 + 1e-6


def test_little_memory_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = perceptron()
    feeds = samples(model, 6, N=3)
    whole = list(moments(model, bare_context(), feeds, _readings(), 999))
    for name in ("_MOST_TAPPED", "_MOST_MOMENTS", "_FLUSH_ROWS"):
        monkeypatch.setattr(f"passes.quantize.moments.{name}", 1)
    parts = list(moments(model, bare_context(), feeds, _readings(), 999))
    assert [r for r, *_ in parts] == [r for r, *_ in whole]
    for (_, *a), (_, *b) in zip(whole, parts, strict=True):
        assert all(np.allclose(p.mean(), q.mean(), atol=1e-5) for p, q in zip(a, b, strict=True))
