import numpy as np
import pytest

from optcc.measure.classes import Reading, class_of_labels, class_unlabeled

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def softmax(array, axis):
    e = np.exp(array)
    return (e / e.sum(axis=axis, keepdims=True)).astype(np.float32)


def of_labels(outputs, labels):
    labels = np.asarray(labels)
    return class_of_labels(outputs, labels, int(labels.max()))


@pytest.mark.parametrize(
    ("shape", "labels", "axis"),
    [
        ((4, 10), (4,), 1),
        ((4, 10), (4, 1), 1),
        ((4, 10, 1, 1), (4,), 1),
        ((1, 10), (1,), 1),
        ((2, 7, 5), (2, 7), 2),
        ((2, 9, 6, 5), (2, 6, 5), 1),
        ((2, 6, 5, 9), (2, 6, 5), 3),
    ],
)
def test_finds_the_axis_of_the_classes(shape, labels, axis):
    found = of_labels({"y": floats(*shape)}, RNG.integers(0, 5, labels))
    assert (found.output, found.reading, found.axis) == ("y", Reading.SCORES, axis)


def test_scores_come_before_an_index_and_that_before_one_score():
    labels = np.array([0, 1, 1])
    index, one, scores = np.array([0, 1, 0]), floats(3, 1), floats(3, 2)
    assert of_labels({"one": one, "index": index, "scores": scores}, labels).output == "scores"
    assert of_labels({"one": one, "index": index}, labels).output == "index"
    assert of_labels({"one": one}, labels).reading is Reading.BINARY


def test_an_output_with_too_few_classes_is_passed_over():
    labels = np.array([0, 7, 3])
    assert of_labels({"aux": floats(3, 4), "main": floats(3, 8)}, labels).output == "main"
    assert of_labels({"aux": floats(3, 4)}, labels) is None


def test_the_threshold_of_one_score_follows_from_its_range():
    labels = np.array([0, 1, 1, 0])
    probability = of_labels({"p": np.array([[0.2], [0.7], [0.6], [0.4]], np.float32)}, labels)
    logit = of_labels({"z": np.array([-1.0, 0.2, 3.0, -0.3], np.float32)}, labels)
    assert (probability.threshold, logit.threshold) == (0.5, 0.0)
    assert probability.predict(np.array([[0.4], [0.6]])).tolist() == [0, 1]
    assert logit.predict(np.array([-0.1, 0.1, np.nan])).tolist() == [0, 1, -1]


def test_text_labels_fit_text_outputs_only():
    outputs = {"p": floats(2, 3), "label": np.array(["cat", "dog"], object)}
    assert class_of_labels(outputs, np.array(["cat", "cow"])).output == "label"
    assert class_of_labels({"p": floats(2, 3)}, np.array(["cat", "cow"])) is None


def test_a_score_that_is_not_a_number_names_no_class():
    source = of_labels({"y": floats(3, 4)}, np.array([0, 1, 3]))
    scores = np.array([[0, 1, 2, np.nan], [0, 3, 2, 1], [np.nan] * 4])
    assert source.predict(scores).tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    ("name", "array", "classes"),
    [
        ("y", softmax(floats(6, 3), 1), True),
        ("y", softmax(floats(2, 5, 3), 2), True),
        ("y", softmax(floats(2, 3, 4, 4), 1), True),
        ("y", floats(6, 10), True),
        ("logits", floats(6, 128), True),
        ("y", RNG.integers(0, 5, 6), True),
        ("y", np.array(["a", "b"], object), True),
        ("y", floats(6, 128), False),
        ("embedding", floats(6, 10), False),
        ("boxes", floats(6, 4), False),
        ("y", floats(6), False),
        ("y", floats(6, 1), False),
        ("y", floats(2, 5, 3), False),
        ("cls_8", floats(2, 1600, 1), False),
        ("logits", floats(2, 10, 1, 1), True),
        ("y", np.empty((0, 3), np.float32), False),
        ("y", np.full((2, 3), np.nan, np.float32), True),
    ],
)
def test_without_labels_name_and_values_decide(name, array, classes):
    found = class_unlabeled(name, array, only=True, wanted=False)
    assert (found is not None) == classes


def test_unit_vectors_are_no_classes():
    vectors = floats(6, 10)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert class_unlabeled("y", vectors, only=True, wanted=False) is None


def test_one_of_several_outputs_needs_a_sign_that_it_holds_classes():
    assert class_unlabeled("y", floats(6, 10), only=False, wanted=False) is None
    assert class_unlabeled("cls", floats(6, 10), only=False, wanted=False) is not None
    assert class_unlabeled("y", floats(6, 10), only=False, wanted=True) is not None
