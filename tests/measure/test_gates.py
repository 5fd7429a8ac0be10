import pytest

from optcc.measure.figures import AccuracyFigures, OutputFigures
from optcc.measure.gates import fewest_samples, judge


def output(name="y", *, sqnr_db=40.0, agreement=None, informative=True, broken=0):
    return OutputFigures(
        name=name,
        max_abs=0.1,
        sqnr_db=sqnr_db,
        cosine=0.99,
        agreement=agreement,
        informative=informative,
        broken=broken,
    )


def row(drop=None, *, samples=1000, interval=None, outputs=(), metric="top1"):
    labelled = drop is not None
    return AccuracyFigures(
        metric=metric if labelled else None,
        value=0.9 if labelled else None,
        original=0.9 if labelled else None,
        drop_points=drop,
        drop_ci95=interval,
        per_class=None,
        mcnemar_p=None,
        agreement=None,
        outputs=tuple(outputs),
        samples=samples,
        note="",
    )


def passed(figures, max_drop=1.0):
    return [g.passed for g in judge(max_drop, [("model.onnx", figures)])]


@pytest.mark.parametrize(
    ("drop", "limit", "expected"),
    [(0.0, 1.0, True), (1.0, 1.0, True), (1.01, 1.0, False), (-3.0, 0.0, True), (0.1, 0.0, False)],
)
def test_with_enough_samples_the_drop_decides(drop, limit, expected):
    assert passed(row(drop, interval=(drop - 1, drop + 1)), limit) == [expected]


def test_the_gate_says_what_it_saw():
    gate = judge(1.0, [("model.onnx", row(1.25, interval=(0.5, 2.0)))])[0]
    assert (gate.name, gate.limit, gate.file) == ("drop of top1", "1 point", "model.onnx")
    assert gate.value == "1.25 points (95 % interval 0.50 to 2.00), 1000 samples"


@pytest.mark.parametrize(
    ("limit", "count"), [(1.0, 100), (0.3, 334), (0.05, 1000), (0, 1000), (20, 30)]
)
def test_one_sample_may_not_weigh_more_than_the_limit(limit, count):
    assert fewest_samples(limit) == count


def test_too_few_samples_decide_nothing_but_a_plain_loss():
    assert passed(row(0.0, samples=99, interval=(-2, 2))) == [None]
    assert passed(row(2.0, samples=99, interval=(-1, 5))) == [None]
    assert passed(row(50.0, samples=20, interval=(25, 75))) == [False]
    assert passed(row(50.0, samples=20, metric="f1")) == [None]


def test_every_artifact_is_judged():
    gates = judge(1.0, [("a", row(0.0)), ("b", row(9.0))])
    assert [(g.file, g.passed) for g in gates] == [("a", True), ("b", False)]


def test_switched_off_is_visible():
    gates = judge(None, [("a", row(99.0))])
    assert [(g.limit, g.passed, g.value) for g in gates] == [("off", None, "not judged")]


def test_nan_fails_even_when_the_metric_holds():
    gates = judge(1.0, [("a", row(0.0, outputs=[output(broken=3)]))])
    assert [g.passed for g in gates] == [True, False]
    assert "3 elements" in gates[1].value


@pytest.mark.parametrize(
    ("agreement", "samples", "sqnr", "expected"),
    [
        (0.98, 1000, 5.0, True),
        (0.9799, 1000, 50.0, False),
        (1.0, 50, 5.0, True),
        (1.0, 20, 30.0, True),
        (1.0, 20, None, True),
        (1.0, 20, 10.0, None),
        (1.0, 7, 30.0, None),
        (19 / 20, 20, 30.0, None),
        (12 / 20, 20, 30.0, False),
    ],
)
def test_without_labels_classes_must_agree(agreement, samples, sqnr, expected):
    seen = output(agreement=agreement, sqnr_db=sqnr)
    assert passed(row(samples=samples, outputs=[seen])) == [expected]


@pytest.mark.parametrize(
    ("sqnr", "samples", "expected"),
    [
        (20.0, 100, True),
        (None, 100, True),
        (19.9, 100, False),
        (-200.0, 100, False),
        (30.0, 7, None),
        (16.0, 7, None),
        (3.0, 7, False),
    ],
)
def test_without_labels_values_must_be_close(sqnr, samples, expected):
    assert passed(row(samples=samples, outputs=[output(sqnr_db=sqnr)])) == [expected]


def test_agreeing_on_one_class_only_proves_nothing():
    gates = judge(
        1.0, [("a", row(outputs=[output(agreement=1.0, informative=False, sqnr_db=3.0)]))]
    )
    assert [(g.name, g.passed) for g in gates] == [("SQNR of y", False)]


def test_every_output_has_its_gate():
    outputs = [output("cls", agreement=1.0), output("box", sqnr_db=10.0)]
    gates = judge(1.0, [("a", row(outputs=outputs))])
    assert [(g.name, g.passed) for g in gates] == [
        ("agreement of cls", True),
        ("SQNR of box", False),
    ]


@pytest.mark.parametrize(
    ("share", "samples", "expected"),
    [
        (48 / 51, 51, False),
        (49 / 51, 51, False),
        (30 / 51, 51, False),
        (50 / 51, 51, True),
        (244 / 250, 250, False),
        (245 / 250, 250, True),
    ],
)
def test_from_fifty_samples_on_the_share_decides(share, samples, expected):
    figures = row(samples=samples, outputs=[output("y", agreement=share)])
    assert passed(figures) == [expected]
