"""Fairness is tested on a simulated clock, so no test depends on this machine's speed."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

from optcc.graph.io import to_bytes
from optcc.measure import latency
from optcc.measure.latency import compare_calls, compare_latency
from tests.models.small import chain


class World:
    """A machine with a clock; `slowness(now)` scales every call."""

    def __init__(self, monkeypatch, slowness=lambda now: 1.0, noise=0.0, seed=0):
        self.now, self.calls = 0.0, []
        self._slowness, self._noise = slowness, noise
        self._rng = np.random.default_rng(seed)
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(latency, "time", clock)

    def model(self, name, seconds):
        def call(feed):
            self.calls.append(name)
            factor = self._slowness(self.now) * float(np.exp(self._rng.normal(0, self._noise)))
            self.now += seconds * factor

        return call


def compared(monkeypatch, original_s, optimized_s, *, seconds=1.5, seed=0, **world):
    machine = World(monkeypatch, **world)
    models = machine.model("a", original_s), machine.model("b", optimized_s)
    figures = compare_calls(*models, [{}], seconds=seconds, seed=seed)
    return figures, machine


def test_finds_the_ratio_and_states_what_it_did(monkeypatch):
    figures, machine = compared(monkeypatch, 0.004, 0.002, noise=0.05)
    assert figures.speedup.median == pytest.approx(2.0, rel=0.03)
    low, high = figures.speedup.ci95
    assert low < figures.speedup.median < high
    assert figures.original.p50_ms == pytest.approx(4.0, rel=0.05)
    assert figures.original.p50_ms < figures.original.p90_ms < figures.original.p99_ms
    untimed = figures.warmup_runs + figures.pairs
    assert machine.calls.count("a") == machine.calls.count("b") == figures.runs + untimed


def test_a_machine_that_slows_down_favours_nobody(monkeypatch):
    figures, machine = compared(
        monkeypatch, 0.004, 0.004, slowness=lambda now: 1 + 2 * now, noise=0.02
    )
    assert figures.speedup.median == pytest.approx(1.0, abs=0.02)
    assert figures.speedup.ci95[0] < 1.0 < figures.speedup.ci95[1]
    half = len(machine.calls) // 2
    assert abs(machine.calls[:half].count("a") - half / 2) < 0.1 * half


def test_bursts_of_other_work_do_not_shift_the_ratio(monkeypatch):
    figures, _ = compared(
        monkeypatch, 0.006, 0.004, slowness=lambda now: 8.0 if now % 0.2 < 0.02 else 1.0, noise=0.02
    )
    assert figures.speedup.median == pytest.approx(1.5, rel=0.03)
    assert figures.original.p99_ms > 4 * figures.original.p50_ms


def test_equal_models_are_rarely_called_different(monkeypatch):
    rounds, wrong = 120, 0
    for seed in range(rounds):
        figures, _ = compared(
            monkeypatch,
            0.02,
            0.02,
            noise=0.15,
            seed=seed,
            slowness=lambda now: 1 + 0.3 * np.sin(9 * now),
        )
        low, high = figures.speedup.ci95
        wrong += not low <= 1.0 <= high
    assert wrong / rounds <= 0.08


@pytest.mark.parametrize("pair_s", [2e-5, 1e-3, 0.03, 0.2, 0.5, 1.0])
def test_spends_the_time_given_and_at_most_four_seconds(monkeypatch, pair_s):
    figures, machine = compared(monkeypatch, 0.6 * pair_s, 0.4 * pair_s)
    assert 1.4 < machine.now < 4.1
    assert figures.pairs >= 2
    assert figures.measured_s == pytest.approx(machine.now)


def test_a_very_slow_model_gets_the_fewest_runs(monkeypatch):
    figures, _ = compared(monkeypatch, 9.0, 6.0)
    assert (figures.warmup_runs, figures.runs, figures.pairs) == (1, 2, 2)
    assert figures.speedup.median == pytest.approx(1.5)


def test_short_runs_share_a_block_and_each_block_is_refreshed(monkeypatch):
    figures, machine = compared(monkeypatch, 0.001, 0.001)
    assert figures.runs > 4 * figures.pairs
    warm = 2 * figures.warmup_runs
    per_block = figures.runs // figures.pairs + 1
    blocks = [
        "".join(machine.calls[i : i + per_block])
        for i in range(warm, len(machine.calls), per_block)
    ]
    assert set(blocks) == {"a" * per_block, "b" * per_block}


def test_each_side_goes_first_equally_often(monkeypatch):
    _, machine = compared(monkeypatch, 0.1, 0.1)
    order = "".join(machine.calls[2:])
    pairs = [order[i : i + 2] for i in range(0, len(order) - 1, 2)]
    assert abs(pairs.count("ab") - pairs.count("ba")) <= 1


def test_the_seed_decides_the_order(monkeypatch):
    orders = [compared(monkeypatch, 0.03, 0.02, seed=s)[1].calls for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_both_sides_of_a_pair_get_the_same_feed(monkeypatch):
    machine = World(monkeypatch)
    seen = {"a": [], "b": []}

    def model(name):
        def call(feed):
            seen[name].append(feed["k"])
            machine.now += 0.1

        return call

    compare_calls(model("a"), model("b"), [{"k": 0}, {"k": 1}, {"k": 2}])
    assert seen["a"] == seen["b"]
    assert set(seen["a"]) == {0, 1, 2}


def test_garbage_collection_is_off_meanwhile_and_on_again(monkeypatch):
    machine, states = World(monkeypatch), []

    def call(feed):
        states.append(gc.isenabled())
        machine.now += 0.1

    compare_calls(call, call, [{}])
    assert not any(states)
    assert gc.isenabled()


def test_no_feeds_are_refused():
    with pytest.raises(ValueError, match="at least one feed"):
        compare_calls(print, print, [])


def test_times_two_real_models():
    model = to_bytes(chain("Relu", "Abs"))
    figures = compare_latency(model, model, [{"x": np.ones(2, np.float32)}], seconds=0.05)
    assert figures.threads == 1
    assert figures.runs >= 2
    assert 0 < figures.speedup.ci95[0] <= figures.speedup.ci95[1]
