from __future__ import annotations

import json
from pathlib import Path

import pytest

from optcc.cli.main import run
from optcc.config.request import Precision
from optcc.config.selection import PassSelection
from optcc.errors import ConfigError, ExitCode
from optcc.report.explanation import (
    Change,
    Explanation,
    HeavyNode,
    LeftAlone,
    PassExplanation,
)
from tests.cli.conftest import FakeDriver

FOUND = Explanation(
    source="m.onnx",
    precision="int8",
    stages=["simplify"],
    passes=[
        PassExplanation(
            name="fuse.x",
            rewrites=[Change(node="bn", what="Conv + BatchNormalization")],
            left_alone=[LeftAlone(node="bn2", reason="value 'c' is also a graph output")],
        ),
        PassExplanation(name="fuse.y", rewrites=[]),
    ],
    heavy=[
        HeavyNode(node="conv", op_type="Conv", wanted="int8"),
        HeavyNode(node="core", op_type="MatMul", wanted="fp32", reason="attention core"),
    ],
    notes=["'bn' is part of 'conv' now"],
)


def test_explain_in_words(driver: FakeDriver, capsys) -> None:
    asked = {}
    driver.explain = lambda source, **options: asked.update(source=source, **options) or FOUND
    arguments = ["m.onnx", "--node", "bn", "--pass", "fuse.*", "--precision", "int8"]
    arguments += ["--skip-pass", "fuse.pad"]
    assert run(["explain", *arguments]) == 0
    del asked["progress"]
    assert asked == {
        "source": Path("m.onnx"),
        "node": "bn",
        "passes": "fuse.*",
        "precision": Precision.INT8,
        "selection": PassSelection(skip=("fuse.pad",)),
    }
    assert capsys.readouterr().out.splitlines() == [
        "fuse.x: 1 rewrite, 1 left alone",
        "  bn: Conv + BatchNormalization",
        "  left alone: bn2: value 'c' is also a graph output",
        "fuse.y: 0 rewrites",
        "int8: 1 of 2 heavy nodes",
        "  conv (Conv): int8",
        "  core (MatMul): fp32, attention core",
        "'bn' is part of 'conv' now",
    ]


def test_explain_as_json(driver: FakeDriver, capsys) -> None:
    driver.explain = lambda source, **options: FOUND
    assert run(["explain", "m.onnx", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["passes"][0]["rewrites"][0]["node"] == "bn"
    assert table["heavy"][1]["reason"] == "attention core"


@pytest.mark.parametrize("arguments", [["--help"], ["m.onnx", "--precision", "int9"], []])
def test_explain_without_work(driver: FakeDriver, arguments: list[str], capsys) -> None:
    assert run(["explain", *arguments]) == (0 if arguments == ["--help"] else ExitCode.CONFIG)
    assert len(capsys.readouterr().err.splitlines()) <= 2


def test_an_unknown_node_is_code_2(driver: FakeDriver, capsys) -> None:
    def explain(source: Path, **options: object) -> Explanation:
        raise ConfigError("there is no node 'x' in m.onnx", hint="did you mean 'y'?")

    driver.explain = explain
    assert run(["explain", "m.onnx", "--node", "x"]) == ExitCode.CONFIG
    assert capsys.readouterr().err == (
        "error: there is no node 'x' in m.onnx\nhint: did you mean 'y'?\n"
    )
