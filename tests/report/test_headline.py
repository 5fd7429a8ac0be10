import msgspec

from optcc.report.headline import headline, is_random, red_findings, worst_row
from optcc.report.schema import Accuracy, Latency
from tests.report.sample import accuracy_row, bare_report, good_report, random_report


def test_takes_the_worst_artifact() -> None:
    row = worst_row(good_report())
    assert row is not None
    assert row.file == "model.onnxruntime.onnx"


def test_without_labels_the_least_agreement_is_the_worst() -> None:
    rows = [
        msgspec.structs.replace(accuracy_row(name, 0.9), drop_points=None, agreement=share)
        for name, share in (("a", 0.99), ("b", 0.97), ("c", 0.98))
    ]
    row = worst_row(good_report(accuracy=Accuracy(source="s", artifacts=rows)))
    assert row is not None
    assert row.file == "b"


def test_headline_in_order() -> None:
    facts = headline(good_report())
    assert [f.label for f in facts] == [
        "top1 drop",
        "speed-up",
        "size",
        "engine for tensorrt_rtx",
    ]
    assert [f.value for f in facts] == [
        "0.25 points",
        "2.26x",
        "28.6 %",
        "1 of 1 heavy layers int8",
    ]
    assert "not run (no device); for SM80, SM86, SM89 and SM120" in facts[-1].note


def test_an_engine_is_counted_by_its_heavy_layers() -> None:
    conv = good_report().precision[0]
    slow = msgspec.structs.replace(conv, node="b", got={"tensorrt_rtx": "fp32"})
    relu = msgspec.structs.replace(slow, node="c", op_type="Relu")
    value = headline(good_report(precision=[slow, conv, slow, relu]))[-1].value
    assert value == "1 of 3 heavy layers int8"
    assert headline(good_report(precision=[relu]))[-1].value == "8 of 10 nodes int8"


def test_a_gain_is_no_drop() -> None:
    rows = [accuracy_row("model.onnx", 0.9975)]
    first = headline(good_report(accuracy=Accuracy(source="s", artifacts=rows)))[0]
    assert (first.label, first.value) == ("top1 change", "+0.50 points")


def test_what_was_not_measured_is_not_claimed() -> None:
    assert headline(bare_report()) == []
    facts = headline(good_report(latency=Latency(artifacts=good_report().latency.artifacts[1:])))
    assert "speed-up" not in [f.label for f in facts]


def test_random_calibration_always_has_a_banner() -> None:
    calibration = msgspec.structs.replace(random_report().calibration, findings=[])
    report = random_report()
    assert is_random(report)
    assert [f.message for f in red_findings(report)] == ["ranges from noise"]
    silent = msgspec.structs.replace(report, calibration=calibration)
    assert "random data" in red_findings(silent)[0].message
    assert red_findings(good_report()) == []
