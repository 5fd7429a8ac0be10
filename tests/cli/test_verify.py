from __future__ import annotations

import json
from pathlib import Path

import pytest

from optcc.cli.main import run
from optcc.errors import ConfigError, ExitCode
from optcc.report.comparison import (
    Bisection,
    LayerRow,
    LayerTable,
    ModelComparison,
    OutputComparison,
)
from optcc.report.verification import FolderCheck, FolderVerification
from tests.cli.conftest import FakeDriver

FINE = FolderVerification(
    folder="out",
    fine=True,
    original="a.onnx",
    inputs="seeded inputs",
    checks=[FolderCheck(name="files", file="", outcome="ok", text="4 files as recorded")],
)
BAD = FolderVerification(
    folder="out",
    fine=False,
    checks=[
        *FINE.checks,
        FolderCheck(name="files", file="x", outcome="failed", text="x is missing"),
        FolderCheck(name="report", file="r", outcome="not checked", text="r: no sha256"),
    ],
)
SCORES = OutputComparison(
    name="scores",
    max_abs=0.5,
    max_rel=0.125,
    sqnr_db=20.0,
    cosine=0.99,
    agreement=0.75,
    allowed=1e-5,
    equal=False,
    note="error 0.125",
)
LAYER = LayerRow(node="n", op_type="Conv", value="v", max_rel=0.25, sqnr_db=18.0, equal=False)
APART = ModelComparison(
    first="a.onnx",
    second="b.onnx",
    inputs="rows.npz",
    samples=20,
    allowance="rounding",
    equal=False,
    outputs=[SCORES],
    layers=LayerTable(compared=3, first=LAYER, rows=[LAYER]),
    bisection=Bisection(note="with pass 'p' at 'n'", reproducer="dir"),
    notes=["one"],
)


def test_a_fine_folder(driver: FakeDriver, capsys) -> None:
    asked = {}
    driver.verify_output = lambda folder, **options: asked.update(folder=folder, **options) or FINE
    arguments = ["out", "--model", "a.onnx", "--inputs", "rows.npz", "--shapes", "x:1"]
    assert run(["verify", *arguments]) == 0
    del asked["progress"]
    assert asked == {
        "folder": Path("out"),
        "model": Path("a.onnx"),
        "inputs": "rows.npz",
        "shapes": "x:1",
    }
    assert capsys.readouterr().out.splitlines() == [
        "ok           4 files as recorded",
        "",
        "fine: out, 1 ok, 0 failed, 0 not checked; models ran on seeded inputs",
    ]


def test_a_folder_that_is_not_fine_is_code_4_and_says_which_file(driver, capsys) -> None:
    driver.verify_output = lambda folder, **options: BAD
    assert run(["verify", "out"]) == ExitCode.VERIFICATION
    captured = capsys.readouterr()
    assert captured.err == "error: out is not as it was written: x is missing\n"
    assert captured.out.splitlines()[1:3] == [
        "failed       x is missing",
        "not checked  r: no sha256",
    ]
    assert "not fine: out, 1 ok, 1 failed, 1 not checked; models were not run" in captured.out


def test_two_models_that_differ(driver: FakeDriver, capsys) -> None:
    asked = {}
    driver.compare_models = lambda a, b, **options: asked.update(a=a, b=b, **options) or APART
    arguments = ["a.onnx", "b.onnx", "--layers", "--tolerance", "0.1", "--reproducer", "dir"]
    assert run(["verify", *arguments]) == ExitCode.VERIFICATION
    assert (asked["a"], asked["b"], asked["layers"]) == (Path("a.onnx"), Path("b.onnx"), True)
    assert (asked["tolerance"], asked["reproducer"]) == (0.1, Path("dir"))
    captured = capsys.readouterr()
    assert captured.err == "error: b.onnx differs from a.onnx: output 'scores'\n"
    assert captured.out.splitlines() == [
        "output  max abs  max rel  allowed  SQNR     cosine    agreement",
        "scores  0.5      0.12     1e-05    20.0 dB  0.990000  75.00 %    differs",
        "scores: error 0.125",
        "",
        "3 inner values with the same name in both models: they part at node 'n' (Conv), value 'v'",
        "node  operator  value  max rel  SQNR",
        "n     Conv      v      0.25     18.0 dB  differs",
        "",
        "bisection: with pass 'p' at 'n'",
        "reproducer: dir",
        "note: one",
        "",
        "not equal in scores: b.onnx against a.onnx, within rounding, on 20 samples (rows.npz)",
    ]


@pytest.mark.parametrize("arguments", [["out"], ["a", "b"]])
def test_verify_as_json(driver: FakeDriver, arguments: list[str], capsys) -> None:
    driver.verify_output = lambda folder, **options: FINE
    driver.compare_models = lambda a, b, **options: APART
    code = run(["verify", *arguments, "--json"])
    assert code == (0 if len(arguments) == 1 else ExitCode.VERIFICATION)
    assert json.loads(capsys.readouterr().out)["schema_version"] == "1.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["out", "--layers"], "--layers needs two models"),
        (["out", "--tolerance", "0"], "--tolerance needs two models"),
        (["out", "--reproducer", "d"], "--reproducer needs two models"),
        (["a", "b", "--model", "c"], "--model is for an output folder alone"),
        (["a", "b", "--tolerance", "x"], "--tolerance"),
        ([], "missing argument"),
    ],
)
def test_options_that_do_not_go_together(driver, arguments, words: str, capsys) -> None:
    assert run(["verify", *arguments]) == ExitCode.CONFIG
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert len(captured.err.splitlines()) <= 2


def test_no_folder_is_code_2(driver: FakeDriver, capsys) -> None:
    def verify_output(folder: Path, **options: object) -> FolderVerification:
        raise ConfigError("out does not exist")

    driver.verify_output = verify_output
    assert run(["verify", "out"]) == ExitCode.CONFIG
    assert capsys.readouterr().err == "error: out does not exist\n"
