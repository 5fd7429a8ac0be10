from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from optcc.cli.listing import render_doctor
from optcc.cli.main import run
from optcc.report.inspection import EngineInspection, ModelInspection, PassInfo
from tests.cli.conftest import FakeDriver
from tests.report.sample import good_report

MODEL = ModelInspection(
    file="m.onnx",
    bytes=2048,
    opset=21,
    ir_version=10,
    inputs={"x": "float32[batch, 3]"},
    outputs={"y": "float32[batch, 10]"},
    nodes=4,
    ops={"Add": 1, "Conv": 3},
    parameters=12_345,
    flops=67_890,
    flops_at="x 1x3",
    notes=["batch is dynamic"],
)
ENGINE = EngineInspection(
    file="m.engine", bytes=99, kind="tensorrt_rtx", magic="66747274", targets=["sm80", "sm120"]
)


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_report_writes_the_driver_s_rendering(driver: FakeDriver, form: str, capsys) -> None:
    driver.render_report = lambda folder, kind: f"{folder} as {kind}"
    assert run(["report", "out", "--format", form]) == 0
    assert capsys.readouterr().out == f"out as {form}\n"


def test_report_is_for_the_terminal_by_default(driver: FakeDriver, capsys) -> None:
    asked: list[Path] = []
    driver.load_report = lambda folder: asked.append(folder) or good_report()
    assert run(["report", "out"]) == 0
    assert asked == [Path("out")]
    assert "pass: digits.onnx" in capsys.readouterr().out


def test_inspect_a_model(driver: FakeDriver, capsys) -> None:
    driver.inspect_file = lambda path: MODEL
    assert run(["inspect", "m.onnx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "file        m.onnx, 2.0 KiB",
        "format      ONNX, opset 21, IR version 10",
        "input       x: float32[batch, 3]",
        "output      y: float32[batch, 10]",
        "parameters  12,345",
        "FLOPs       67,890 at x 1x3",
        "nodes       4",
        "  Conv      3",
        "  Add       1",
        "note        batch is dynamic",
    ]


def test_inspect_an_engine_says_what_is_not_known(driver: FakeDriver, capsys) -> None:
    driver.inspect_file = lambda path: ENGINE
    assert run(["inspect", "m.engine"]) == 0
    text = capsys.readouterr().out
    assert "tensorrt_rtx engine, magic 66747274" in text
    assert "sm80, sm120" in text
    assert "version  not known" in text


@pytest.mark.parametrize("found", [MODEL, ENGINE])
def test_inspect_as_json(driver: FakeDriver, found, capsys) -> None:
    driver.inspect_file = lambda path: found
    run(["inspect", "f", "--json"])
    assert msgspec.json.decode(capsys.readouterr().out, type=type(found)) == found


def test_passes_in_one_line_each(driver: FakeDriver, capsys) -> None:
    driver.list_passes = lambda: [
        PassInfo(name="fuse.x", distribution="d", exactness="rounding", summary="Fuse x."),
        PassInfo(name="gone", distribution="d", problem="cannot be imported: No module 'z'"),
    ]
    assert run(["passes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fuse.x  rounding  Fuse x.",
        "gone    cannot be imported: No module 'z'",
    ]


def test_doctor_gives_the_remedy_of_what_is_missing_only(monkeypatch, capsys) -> None:
    good = SimpleNamespace(name="onnxruntime", ok=True, version="1.32.0", detail="CPU", hint="h1")
    bad = SimpleNamespace(name="tensorrt", ok=False, version="", detail="absent", hint="pip ...")
    monkeypatch.setattr("optcc.backends.doctor.diagnose", lambda: [good, bad])
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text == render_doctor([good, bad])
    assert "h1" not in text
    assert text.splitlines() == [
        "ok  onnxruntime  1.32.0 CPU",
        "--  tensorrt     absent",
        "                 hint: pip ...",
    ]
