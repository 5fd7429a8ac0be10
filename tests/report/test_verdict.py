from dataclasses import replace

import msgspec
import pytest

from optcc.report.schema import EngineRow, Finding, Gate, Report
from optcc.report.verdict import Evidence, decide
from tests.report.sample import good_report, pass_row, random_report, unlabelled_report


def evidence(report: Report, precision: str = "int8") -> Evidence:
    return Evidence(
        precision=precision,
        calibration=report.calibration,
        passes=report.passes,
        nodes=report.precision,
        accuracy=report.accuracy,
        engines=report.engines,
        gates=report.gates,
    )


def gate(passed: bool | None, limit: str = "1 points") -> Gate:
    return Gate(name="drop of top1", limit=limit, value="1.40 points", passed=passed, file="m.onnx")


def test_a_good_report_passes_without_a_reason() -> None:
    assert decide(evidence(good_report())) == ("pass", [])


def test_a_failed_gate_fails() -> None:
    verdict, reasons = decide(replace(evidence(good_report()), gates=[gate(True), gate(False)]))
    assert verdict == "fail"
    assert reasons == ["drop of top1 in m.onnx: 1.40 points; the limit is 1 points"]


def test_nothing_quantized_fails_int8_only() -> None:
    nothing = replace(evidence(good_report()), nodes=good_report().precision[1:])
    left = nothing.nodes[0]
    reason = f"not one node was quantized: {left.node!r} ({left.op_type}): {left.reason}"
    assert decide(nothing) == ("fail", [reason])
    assert decide(replace(nothing, precision="fp32"))[0] == "pass"


def test_a_broken_promise_fails() -> None:
    row = pass_row("fuse.x", 1, conclusive=1)
    broken = msgspec.structs.replace(row, check=msgspec.structs.replace(row.check, verdict="fail"))
    verdict, reasons = decide(replace(evidence(good_report()), passes=[broken]))
    assert verdict == "fail"
    assert "fuse.x" in reasons[0]


def test_random_calibration_is_unverified_and_says_so_once() -> None:
    verdict, reasons = decide(evidence(random_report()))
    assert verdict == "unverified"
    assert reasons == ["calibrated on random data: the ranges say nothing about real inputs"]


@pytest.mark.parametrize(("severity", "expected"), [("red", "unverified"), ("warning", "pass")])
def test_only_a_red_finding_counts(severity, expected: str) -> None:
    finding = Finding(code="constant", message="all samples are equal", severity=severity)
    calibration = msgspec.structs.replace(good_report().calibration, findings=[finding])
    assert decide(replace(evidence(good_report()), calibration=calibration))[0] == expected


@pytest.mark.parametrize(("status", "expected"), [("failed", "unverified"), ("skipped", "pass")])
def test_a_failed_backend_is_unverified_and_a_missing_one_is_not(status, expected: str) -> None:
    row = EngineRow(backend="tensorrt_rtx", status=status, reason="no parser")
    assert decide(replace(evidence(good_report()), engines=[row]))[0] == expected


def test_a_gate_that_is_off_is_unverified() -> None:
    off = Gate(name="accuracy", limit="off", value="not judged", passed=None)
    verdict, reasons = decide(replace(evidence(good_report()), gates=[off]))
    assert verdict == "unverified"
    assert reasons == ["the accuracy gate is switched off (--max-drop none)"]


def test_no_gate_at_all_is_unverified() -> None:
    bare = replace(evidence(good_report()), gates=[], accuracy=None)
    assert decide(bare) == ("unverified", ["no accuracy was measured"])


@pytest.mark.parametrize(("unclear", "expected"), [(5, "pass"), (6, "unverified")])
def test_more_than_one_check_in_twenty_must_prove_something(unclear: int, expected: str) -> None:
    rows = [
        pass_row("fuse.a", 1, conclusive=95),
        pass_row("fuse.b", 1, conclusive=0, inconclusive=unclear),
    ]
    assert decide(replace(evidence(good_report()), passes=rows))[0] == expected


def test_too_few_samples_are_inconclusive() -> None:
    verdict, reasons = decide(replace(evidence(good_report()), gates=[gate(None)]))
    assert verdict == "inconclusive"
    assert "too few samples" in reasons[0]


def test_without_labels_only_agreement_passes() -> None:
    assert decide(evidence(unlabelled_report()))[0] == "pass (agreement only)"


def test_the_gravest_wins_and_every_reason_stays() -> None:
    verdict, reasons = decide(replace(evidence(random_report()), gates=[gate(None), gate(False)]))
    assert verdict == "fail"
    assert [text.split()[0] for text in reasons] == ["drop", "calibrated", "drop"]
