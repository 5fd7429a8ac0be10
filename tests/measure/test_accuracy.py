"""Accuracy on fake models whose outputs are known by heart."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, top_k_accuracy_score

from optcc.errors import ConfigError
from optcc.measure.accuracy import check_metric, evaluate, evaluate_all


@dataclass
class Batch:
    feed: dict
    count: int
    labels: np.ndarray | None


class Data:
    """Samples 0..n-1, each fed as its own number."""

    def __init__(self, samples, labels=None, *, batch=16, pad=False):
        self.samples, self.batch, self.pad = samples, batch, pad
        self.labels = None if labels is None else np.asarray(labels)

    def batches(self):
        for first in range(0, self.samples, self.batch):
            rows = np.arange(first, min(self.samples, first + self.batch))
            fed = np.resize(rows, self.batch) if self.pad else rows
            labels = None if self.labels is None else self.labels[rows]
            yield Batch({"x": fed}, len(rows), labels)


class Model:
    """Looks its outputs up by the numbers that are fed."""

    def __init__(self, **tables):
        self.tables = {n: np.asarray(t) for n, t in tables.items()}
        self.runs = 0

    def run(self, feeds):
        self.runs += 1
        return {n: t[feeds["x"]] for n, t in self.tables.items()}


def one_hot(classes, count, scale=5.0):
    return (scale * np.eye(count)[np.asarray(classes)]).astype(np.float32)


def flipped(classes, rows, count):
    changed = np.array(classes)
    changed[rows] = (changed[rows] + 1) % count
    return changed


LABELS = np.arange(200) % 10


def test_top1_by_hand():
    original = Model(logits=one_hot(flipped(LABELS, [0, 1], 10), 10))
    artifact = Model(logits=one_hot(flipped(LABELS, [1, 2, 3, 4], 10), 10))
    row = evaluate(original, artifact, Data(200, LABELS))
    assert (row.metric, row.samples) == ("top1", 200)
    assert (row.original, row.value) == (0.99, 0.98)
    assert row.drop_points == pytest.approx(1.0)
    assert row.mcnemar_p == pytest.approx(0.625)  # 3 lost, 1 won
    assert row.agreement == 196 / 200
    assert row.drop_ci95[0] < 1.0 < row.drop_ci95[1]
    assert row.per_class["1"] == {"original": 0.95, "value": 0.95, "samples": 20.0}
    assert row.per_class["2"] == {"original": 1.0, "value": 0.95, "samples": 20.0}
    assert list(row.per_class) == [str(c) for c in range(10)]
    assert "logits" in row.note


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 100), st.integers(1, 40), st.booleans())
def test_batches_and_padding_do_not_matter(seed, batch, pad):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 7, 61)
    models = [Model(y=rng.normal(size=(61, 7)).astype(np.float32)) for _ in range(2)]
    whole = evaluate(*models, Data(61, labels, batch=61))
    parts = evaluate(*models, Data(61, labels, batch=batch, pad=pad))
    assert (parts.value, parts.original, parts.samples) == (whole.value, whole.original, 61)
    assert (parts.per_class, parts.agreement) == (whole.per_class, whole.agreement)
    assert parts.outputs[0].sqnr_db == pytest.approx(whole.outputs[0].sqnr_db)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 100), st.sampled_from([2, 7]))
def test_metrics_equal_those_of_scikit_learn(seed, classes):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 90)])
    scores = rng.normal(size=(len(labels), classes)).astype(np.float32)
    model, data = Model(y=scores), Data(len(labels), labels)
    average = "binary" if classes == 2 else "macro"
    f1 = f1_score(labels, scores.argmax(1), average=average)
    assert evaluate(model, model, data, "f1").value == pytest.approx(f1)
    if classes > 5:
        top5 = top_k_accuracy_score(labels, scores, k=5)
        assert evaluate(model, model, data, "top5").value == pytest.approx(top5)


def test_the_original_runs_once_per_batch_for_all_artifacts():
    original = Model(y=one_hot(LABELS, 10))
    artifacts = {f: Model(y=one_hot(LABELS, 10)) for f in ("a", "b", "c")}
    done = []
    rows = evaluate_all(original, artifacts, Data(200, LABELS, batch=50), on_batch=done.append)
    assert list(rows) == ["a", "b", "c"]
    assert original.runs == 4
    assert done == [50, 100, 150, 200]


def test_an_artifact_of_nan_is_wrong_everywhere():
    original, artifact = Model(y=one_hot(LABELS, 10)), Model(y=np.full((200, 10), np.nan, "f"))
    row = evaluate(original, artifact, Data(200, LABELS))
    assert (row.value, row.agreement, row.outputs[0].broken) == (0.0, 0.0, 2000)
    assert evaluate(original, artifact, Data(200, LABELS), "top5").value == 0.0


def test_mae_is_measured_for_measured_labels():
    truth = np.linspace(0, 10, 41)
    original, artifact = Model(y=(truth + 0.1)[:, None]), Model(y=(truth - 0.35)[:, None])
    row = evaluate(original, artifact, Data(41, truth))
    assert row.metric == "mae"
    assert (row.original, row.value) == (pytest.approx(0.1), pytest.approx(0.35))
    spread = np.abs(truth - np.median(truth)).mean()
    assert row.drop_points == pytest.approx(100 * 0.25 / spread)
    assert (row.mcnemar_p, row.drop_ci95, row.per_class) == (None, None, None)


def test_a_model_that_says_the_median_loses_a_hundred_points():
    truth = np.random.default_rng(0).normal(size=101)
    original, constant = Model(y=truth), Model(y=np.full(101, np.median(truth)))
    assert evaluate(original, constant, Data(101, truth)).drop_points == pytest.approx(100)


def test_negative_labels_are_skipped():
    labels = LABELS.copy()
    labels[::2] = -1
    model = Model(y=one_hot(LABELS, 10))
    row = evaluate(model, model, Data(200, labels))
    assert row.value == 1.0
    assert sum(c["samples"] for c in row.per_class.values()) == 100


def test_labels_per_position_give_no_test_of_independent_samples():
    labels = np.random.default_rng(0).integers(0, 3, (20, 6))
    model = Model(y=one_hot(labels, 3))
    row = evaluate(model, model, Data(20, labels))
    assert (row.value, row.samples) == (1.0, 20)
    assert (row.mcnemar_p, row.drop_ci95) == (None, None)


def test_text_classes():
    names = np.array(["ant", "bee", "cat"], object)
    labels = names[np.arange(60) % 3].astype(str)
    original, artifact = (
        Model(label=labels.astype(object)),
        Model(label=np.roll(labels, 1).astype(object)),
    )
    assert evaluate(original, original, Data(60, labels)).value == 1.0
    row = evaluate(original, artifact, Data(60, labels))
    assert (row.value, row.agreement, row.outputs[0].sqnr_db) == (0.0, 0.0, -200.0)


def test_without_labels_each_output_is_judged_by_its_kind():
    rng = np.random.default_rng(0)
    probs = one_hot(LABELS, 10, 1.0)
    boxes = rng.normal(size=(200, 50, 4)).astype(np.float32)
    artifact = Model(
        probs=one_hot(flipped(LABELS, [0], 10), 10, 1.0), boxes=boxes * np.float32(1.01)
    )
    row = evaluate(Model(probs=probs, boxes=boxes), artifact, Data(200))
    first, second = row.outputs
    assert (row.metric, row.value, row.drop_points) == (None, None, None)
    assert row.agreement == first.agreement == 199 / 200
    assert second.agreement is None
    assert second.sqnr_db == pytest.approx(40, abs=0.1)


def test_a_metric_without_labels_is_said_to_be_missing():
    row = evaluate(Model(y=one_hot(LABELS, 10)), Model(y=one_hot(LABELS, 10)), Data(200), "top1")
    assert (row.metric, row.agreement) == (None, 1.0)
    assert "no labels, so top1 was not measured" in row.note


def test_a_constant_classifier_is_not_informative():
    model = Model(logits=one_hot(np.zeros(200, int), 10))
    assert not evaluate(model, model, Data(200)).outputs[0].informative
    other = Model(logits=one_hot(LABELS, 10))
    assert evaluate(other, other, Data(200)).outputs[0].informative


def test_outputs_whose_size_depends_on_the_data():
    class Detector:
        def __init__(self, extra):
            self.extra = extra

        def run(self, feeds):
            return {"boxes": np.ones((len(feeds["x"]) + self.extra, 4), np.float32)}

    row = evaluate(Detector(0), Detector(1), Data(32))
    assert (row.outputs[0].mismatched, row.outputs[0].sqnr_db) == (2, -200.0)


METRIC_MODULE = """
import numpy as np
calls = []

def accuracy(outputs, labels):
    calls.append(outputs["y"].shape)
    return float((np.asarray(outputs["y"]).argmax(1) == labels).mean())

def ragged(outputs, labels):
    return float(sum(len(part) for part in outputs["z"]))

def fails(outputs, labels):
    raise KeyError("missing")

def odd(outputs, labels):
    return "good"

def infinite(outputs, labels):
    return float("inf")

table = {}
"""


@pytest.fixture
def metric_module(tmp_path, monkeypatch):
    (tmp_path / "my_metric_module.py").write_text(METRIC_MODULE)
    monkeypatch.chdir(tmp_path)
    yield "my_metric_module"
    import sys

    sys.modules.pop("my_metric_module", None)


def test_a_metric_of_the_user_sees_all_samples_at_once(metric_module):
    original = Model(y=one_hot(LABELS, 10))
    artifact = Model(y=one_hot(flipped(LABELS, range(20), 10), 10))
    data = Data(200, LABELS, batch=16, pad=True)
    row = evaluate(original, artifact, data, f"{metric_module}:accuracy")
    assert (row.metric, row.original, row.value) == (f"{metric_module}:accuracy", 1.0, 0.9)
    assert row.drop_points == pytest.approx(10)
    assert row.agreement == 0.9
    import my_metric_module

    assert my_metric_module.calls == [(200, 10), (200, 10)]


def test_a_metric_of_the_user_gets_lists_where_shapes_differ(metric_module):
    class Ragged:
        def run(self, feeds):
            return {"z": np.ones((1, len(feeds["x"])), np.float32)}

    row = evaluate(Ragged(), Ragged(), Data(20, batch=16), f"{metric_module}:ragged")
    assert row.value == 2.0


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("fails", "raised KeyError"),
        ("odd", "returned str, not a number"),
        ("infinite", "returned inf"),
        ("table", "is dict, it must be callable"),
        ("absent", "cannot be loaded"),
    ],
)
def test_a_bad_metric_of_the_user_is_a_config_error(metric_module, metric, message):
    model = Model(y=one_hot(LABELS, 10))
    with pytest.raises(ConfigError, match=message):
        evaluate(model, model, Data(200, LABELS), f"{metric_module}:{metric}")


@pytest.mark.parametrize(
    ("metric", "classes", "labels", "message"),
    [
        ("top3", 10, LABELS, "--metric top3 is not known"),
        ("nowhere_module:f", 10, LABELS, "cannot be loaded"),
        ("top5", 4, LABELS % 4, "means nothing for 4 classes"),
        ("top1", 4, LABELS, r"up to \d+, fit no output for top1"),
        ("top1", 10, LABELS + 0.5, "fit no output for top1"),
        ("mae", 10, LABELS, "fit no output for mae"),
        ("f1", 10, np.array(["a"] * 200), "fit no output for f1"),
    ],
)
def test_a_metric_that_does_not_fit_is_found_early(metric, classes, labels, message):
    model = Model(y=np.zeros((200, classes), np.float32))
    data = Data(200, labels)
    with pytest.raises(ConfigError, match=message):
        check_metric(model, data, metric)
    assert model.runs == 1


def test_the_metric_follows_from_labels_and_outputs():
    scores = Model(y=np.zeros((200, 10), np.float32))
    values = Model(y=np.zeros((200, 1), np.float32))
    assert check_metric(scores, Data(200, LABELS), None) == "top1"
    assert check_metric(scores, Data(200, LABELS.astype(np.float32)), None) == "top1"
    assert check_metric(values, Data(200, LABELS + 0.5), None) == "mae"
    assert check_metric(values, Data(200, LABELS), None) == "mae"
    assert check_metric(scores, Data(200), None) is None


def test_no_samples_are_refused():
    model = Model(y=np.zeros((1, 10), np.float32))
    for call in (check_metric, lambda m, d, metric: evaluate(m, m, d, metric)):
        with pytest.raises(ConfigError, match="no evaluation samples"):
            call(model, Data(0), None)


def test_an_error_of_a_model_comes_through_and_no_thread_stays():
    class Broken:
        def run(self, feeds):
            raise MemoryError("too big")

    before = threading.active_count()
    with pytest.raises(MemoryError, match="too big"):
        evaluate(Model(y=one_hot(LABELS, 10)), Broken(), Data(200, LABELS))
    assert threading.active_count() == before
