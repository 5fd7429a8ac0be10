"""Observed values equal those of one plain run, whatever the batch, the budget or the passes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.calibrate import collector, taps
from optcc.calibrate.collector import collect
from optcc.calibrate.dataset import Dataset, from_feeds, open_source
from optcc.graph.io import to_bytes
from optcc.graph.signature import signature_of
from optcc.progress import Silent
from optcc.runtime.session import Session
from tests.models.residual import residual, residual_samples

NAMES = ("x", "r1", "c2", "r2", "y", "b3")


class Steps(Silent):
    def __init__(self) -> None:
        self.seen: list[tuple[int, int | None]] = []

    def step(self, done: int, total: int | None = None) -> None:
        self.seen.append((done, total))


def dataset(model: ir.Model, images: np.ndarray, size: int = 8) -> Dataset:
    parts = [images[k : k + size] for k in range(0, len(images), size)]
    return from_feeds([{"x": p} for p in parts], signature_of(model))


def plain(images: np.ndarray) -> dict[str, np.ndarray]:
    model = residual()
    made = {v.name: v for n in model.graph for v in n.outputs}
    model.graph.outputs[:] = [made[n] for n in ("r1", "c2", "r2", "y")]
    weights = {"b3": model.graph.initializers["b3"].const_value.numpy()}
    return Session(to_bytes(model)).run({"x": images}) | {"x": images} | weights


@pytest.mark.parametrize("budget", [1 << 30, 40_000, 6_000, 1])
def test_values_are_those_of_a_plain_run_within_any_budget(budget):
    images = residual_samples(21)
    model = residual()
    before = to_bytes(model)
    found = collect(model, NAMES, dataset(model, images), Silent(), budget_bytes=budget)
    assert found.samples == 21
    assert sorted(found.values) == sorted(NAMES)
    for name, want in plain(images).items():
        seen = found.values[name]
        assert seen.count == want.size
        assert seen.low == pytest.approx(want.min(), rel=1e-5)
        assert seen.high == pytest.approx(want.max(), rel=1e-5)
    assert to_bytes(model) == before


@pytest.mark.parametrize("batch", ["n", 4])
def test_no_fetch_exceeds_the_budget(monkeypatch, batch):
    fetched: list[int] = []
    plain_fetch = taps.Tap.fetch

    def fetch(self, feed):
        got = plain_fetch(self, feed)
        fetched.append(sum(a.nbytes for a in got.values()))
        return got

    monkeypatch.setattr(taps.Tap, "fetch", fetch)
    model = residual(batch)
    budget = 6_000
    steps = Steps()
    collect(
        model,
        ("r1", "c2", "r2"),
        dataset(model, residual_samples(32), 4),
        steps,
        budget_bytes=budget,
    )
    largest_value = 8 * 36 * 4 * (1 if batch == "n" else 4)
    assert max(fetched) <= max(budget, largest_value)
    assert max(fetched) > 0.5 * max(budget, largest_value)
    done, total = steps.seen[-1]
    assert done == total


def test_feeds_that_grow_are_planned_by_the_largest():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 2, w] x) => (float[n, 2, w] y) { y = Relu(x) }"""
    )
    narrow, wide = np.ones((2, 2, 3), np.float32), np.ones((6, 2, 30), np.float32)
    data = from_feeds([{"x": narrow}, {"x": wide}], signature_of(model))
    plan = collector.plan_for(model, ["y"], data, 3 * wide[0].nbytes)
    assert [len(f["x"]) for f in plan.parts({"x": wide})] == [3, 3]


def test_a_fixed_batch_counts_the_last_incomplete_one(tmp_path):
    images = residual_samples(6)
    images[5] *= 50
    np.savez(tmp_path / "c.npz", x=images)
    model = residual(4)
    data = open_source(str(tmp_path / "c.npz"), signature=signature_of(model), kind="calib")
    found = collect(model, ("x",), data, Silent())
    assert found.values["x"].high == images.max()
    assert found.samples == 6


def test_stale_shapes_and_missing_types_do_not_matter():
    model = residual()
    for node in model.graph:
        if node.name in ("body", "sum"):
            node.outputs[0].shape, node.outputs[0].type = ir.Shape([1, 2]), None
    found = collect(model, ("c2", "s"), dataset(model, residual_samples(4)), Silent())
    assert found.values["c2"].count == 4 * 8 * 36


def test_a_value_that_the_graph_lacks_is_a_bug():
    model = residual()
    with pytest.raises(ValueError, match="no value 'gone'"):
        collect(model, ("gone",), dataset(model, residual_samples(2)), Silent())


def test_large_models_go_through_a_file_and_leave_none(monkeypatch, tmp_path):
    monkeypatch.setattr(taps, "_IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(taps.tempfile, "tempdir", str(tmp_path))
    images = residual_samples(5)
    model = residual()
    found = collect(model, ("r2",), dataset(model, images), Silent())
    assert found.values["r2"].high == pytest.approx(plain(images)["r2"].max(), rel=1e-5)
    assert list(tmp_path.iterdir()) == []


def test_no_values_need_no_run():
    model = residual()
    assert collect(model, (), dataset(model, residual_samples(2)), Silent()).values == {}
