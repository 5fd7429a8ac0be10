import pytest

from optcc.report.schema import Achieved, LatencyRow, Percentiles
from optcc.report.wording import (
    achieved_text,
    byte_size,
    metric_value,
    percent,
    seconds,
    signed_points,
    speedup,
)
from tests.report.sample import good_report


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_byte_size(count: int, text: str) -> None:
    assert byte_size(count) == text


def test_a_loss_is_negative_and_no_zero_has_a_sign() -> None:
    assert [signed_points(v) for v in (0.25, -0.25, 0.001, -0.001, None)] == [
        "-0.25",
        "+0.25",
        "0.00",
        "0.00",
        "-",
    ]


def test_shares_are_percentages_and_other_metrics_are_not() -> None:
    assert percent(0.5) == "50.00 %"
    assert metric_value("top1", 0.9925) == "99.25 %"
    assert metric_value("mae", 1.23456) == "1.235"
    assert metric_value("mae", None) == "-"


def test_seconds() -> None:
    assert (seconds(0.0123), seconds(12.34)) == ("12 ms", "12.3 s")


def test_speedup_states_its_interval_or_its_reason() -> None:
    measured, missing = good_report().latency.artifacts
    assert speedup(measured) == "2.26x [2.21, 2.31]"
    assert speedup(missing) == "not measured (no device)"


def test_an_engine_on_a_gpu_is_not_compared_with_a_cpu() -> None:
    times = Percentiles(p50_ms=0.25, p90_ms=0.5, p99_ms=0.75)
    row = LatencyRow(file="e", runtime="tensorrt", device="Some GPU (sm89)", optimized=times)
    assert speedup(row) == "on Some GPU (sm89), not compared with a CPU"


def test_achieved_text_leaves_zeros_out() -> None:
    assert achieved_text(Achieved(int8=7, fp32=2)) == "7 int8, 2 fp32"
    assert achieved_text(Achieved()) == "nothing read"
