import sys
from pathlib import Path

import msgspec
import pytest

from optcc.cli.compile import parse_max_drop
from optcc.cli.main import run
from optcc.config.request import Calibrator, CpuClass, Precision, VerifyMode
from optcc.errors import BackendError, ConfigError
from optcc.report.codec import decode
from optcc.report.verdict import exit_code_of
from tests.cli.conftest import FakeDriver
from tests.report.sample import bare_report, good_report, random_report


def test_defaults(driver: FakeDriver) -> None:
    assert run(["compile", "m.onnx"]) == 0
    (request,) = driver.requests
    assert request.model == Path("m.onnx")
    assert request.out_folder == Path("m.optcc")
    assert request.precision is None
    assert request.backends == ()
    assert request.max_drop == 1.0
    assert request.verify is VerifyMode.EACH


def test_every_option_reaches_the_request(driver: FakeDriver) -> None:
    line = (
        "compile m.onnx -o out --precision int8 --calib c.npz --eval e.npz --metric f1 "
        "--max-drop none --backend onnxruntime --backend tensorrt_rtx --target sm80,sm120 "
        "--shapes x:1x3..8x3 --cpu-class avx2 --calibrator mse --ranges r.json --verify stage "
        "--keep-going --strict --seed 7 --force --data-root d"
    )
    run(line.split())
    (request,) = driver.requests
    assert request.out == Path("out")
    assert request.precision is Precision.INT8
    assert (request.calib, request.evaluation, request.metric) == ("c.npz", "e.npz", "f1")
    assert request.max_drop is None
    assert request.backends == ("onnxruntime", "tensorrt_rtx")
    assert request.targets == ("sm80", "sm120")
    assert request.shapes == "x:1x3..8x3"
    assert request.cpu_class is CpuClass.AVX2
    assert request.calibrator is Calibrator.MSE
    assert request.verify is VerifyMode.STAGE
    assert (request.keep_going, request.strict, request.force) == (True, True, True)
    assert request.seed == 7
    assert request.ranges == Path("r.json")
    assert request.data_root == Path("d")


def test_prints_the_report_and_where_it_lies(driver: FakeDriver, capsys) -> None:
    run(["compile", "m.onnx", "-o", "out"])
    captured = capsys.readouterr()
    assert "pass: digits.onnx" in captured.out
    assert captured.out.splitlines()[-1] == f"report  {Path('out') / 'report.html'}"
    assert captured.err == ""


def test_a_path_inside_the_working_folder_is_shown_relative(
    driver: FakeDriver, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    inside, outside = tmp_path / "a" / "out", tmp_path.parent / "elsewhere"
    for folder, shown in ((inside, Path("a") / "out"), (outside, outside)):
        run(["compile", "m.onnx", "-o", str(folder)])
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"report  {shown / 'report.html'}"


def test_json_prints_the_report_and_nothing_else(driver: FakeDriver, capsys) -> None:
    driver.during = lambda progress: progress.warn("fp16 was chosen")
    assert run(["compile", "m.onnx", "--json"]) == 0
    captured = capsys.readouterr()
    assert decode(captured.out.encode()) == good_report()
    assert captured.err == "warning: fp16 was chosen\n"


def test_what_a_callable_of_the_user_prints_stays_off_stdout(driver: FakeDriver, capsys) -> None:
    driver.during = lambda progress: sys.stdout.write("loading samples\n")
    assert run(["compile", "m.onnx", "--json"]) == 0
    captured = capsys.readouterr()
    assert decode(captured.out.encode()) == good_report()
    assert captured.err == "loading samples\n"


def test_progress_is_silent_away_from_a_terminal(driver: FakeDriver, capsys) -> None:
    def work(progress) -> None:
        progress.stage("calibrate")
        progress.step(1, 2)

    driver.during = work
    run(["compile", "m.onnx"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("make", "strict", "code"),
    [
        (good_report, True, 0),
        (random_report, False, 0),
        (random_report, True, 4),
        (bare_report, False, 0),
        (bare_report, True, 5),
        (lambda: good_report(verdict="fail"), False, 4),
        (lambda: good_report(verdict="fail"), True, 4),
        (lambda: good_report(verdict="pass (agreement only)"), True, 4),
    ],
)
def test_exit_codes_follow_the_verdict(driver: FakeDriver, make, strict: bool, code: int) -> None:
    driver.report = make()
    assert run(["compile", "m.onnx", *(["--strict"] if strict else [])]) == code
    assert exit_code_of(make(), strict=strict) == code


def test_a_failed_backend_outweighs_a_verdict_under_strict() -> None:
    report = msgspec.structs.replace(bare_report(), verdict="fail")
    assert exit_code_of(report, strict=True) == 4


def test_a_refused_artifact_is_explained_on_stderr(driver: FakeDriver, capsys) -> None:
    driver.report = good_report(verdict="fail", reasons=["the drop is 3 points"])
    assert run(["compile", "m.onnx"]) == 4
    assert "no artifact was written: the drop is 3 points" in capsys.readouterr().err


def test_a_failure_is_explained_on_stderr_only(driver: FakeDriver, capsys) -> None:
    def fail(progress) -> None:
        raise BackendError("the parser refuses node 'n1'", where="tensorrt_rtx", hint="use fp16")

    driver.during = fail
    assert run(["compile", "m.onnx"]) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ("error: the parser refuses node 'n1' (tensorrt_rtx)\nhint: use fp16\n")


@pytest.mark.parametrize(
    ("text", "value"), [("none", None), ("NONE", None), ("0.3", 0.3), ("0", 0.0)]
)
def test_max_drop(text: str, value: float | None) -> None:
    assert parse_max_drop(text) == value


@pytest.mark.parametrize("text", ["", "1%", "minus"])
def test_max_drop_refuses_other_words(text: str) -> None:
    with pytest.raises(ConfigError, match="0 to 100 or none"):
        parse_max_drop(text)


@pytest.mark.parametrize("text", ["-1", "101", "nan"])
def test_max_drop_must_be_points(driver: FakeDriver, text: str, capsys) -> None:
    assert run(["compile", "m.onnx", f"--max-drop={text}"]) == 2
    assert "--max-drop" in capsys.readouterr().err
    assert driver.requests == []
