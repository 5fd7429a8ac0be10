from __future__ import annotations

import numpy as np
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.config.selection import PassSelection
from optcc.driver import compile_model, plan_passes
from optcc.errors import ConfigError, VerificationError
from optcc.graph.io import write_model
from optcc.progress import Silent
from tests.models.small import chain

SCRIPT = """
from optcc.passkit.surgeon import graphsurgeon_pass

def drop_identity_of_abs(graph):
    first, second = graph.nodes
    second.inputs[0] = first.inputs[0]

def wrong(graph):
    graph.nodes[1].op = "Neg"

def raises(graph):
    raise KeyError("no such node")

@graphsurgeon_pass(exactness="lossy")
def on_purpose(graph):
    graph.nodes[1].op = "Neg"
"""


@pytest.fixture
def request_of(tmp_path):
    model = tmp_path / "model.onnx"
    write_model(chain("Abs", "Abs"), model)
    (tmp_path / "script.py").write_text(SCRIPT)

    def make(*functions: str, **options) -> CompileRequest:
        surgeons = tuple(f"{tmp_path / 'script.py'}:{name}" for name in functions)
        selection = PassSelection(surgeons=surgeons, **options)
        return CompileRequest(
            model=model,
            out=tmp_path / "out",
            precision=Precision.FP32,
            backends=("onnxruntime",),
            passes=selection,
        )

    return make


def test_a_surgeon_that_keeps_the_numbers_is_accepted_and_reported(request_of):
    outcome = compile_model(request_of("drop_identity_of_abs"), Silent())
    row = next(p for p in outcome.report.passes if p.name == "surgeon.drop_identity_of_abs")
    assert (row.rewrites, row.check.verdict) == (1, "pass")
    assert "--surgeon script.py:drop_identity_of_abs" in outcome.report.reproduce


def test_a_surgeon_that_breaks_the_numbers_is_caught_and_named(request_of):
    with pytest.raises(VerificationError, match=r"surgeon\.wrong"):
        compile_model(request_of("wrong"), Silent())


def test_a_surgeon_that_raises_is_named_and_leaves_nothing(request_of, tmp_path):
    with pytest.raises(ConfigError, match=r"script\.py:raises raised KeyError: 'no such node'"):
        compile_model(request_of("raises"), Silent())
    assert not (tmp_path / "out").exists()


def test_what_is_declared_lossy_is_left_to_the_accuracy_gate(request_of):
    outcome = compile_model(request_of("on_purpose"), Silent())
    assert outcome.report.verdict == "fail"


def test_skipped_passes_do_not_run(request_of):
    plan = plan_passes(request_of(skip=("fuse.*",)), Silent())
    names = [p.name for s in plan.stages for p in s.passes]
    assert "eliminate.dead" in names
    assert not [n for n in names if n.startswith("fuse.")]


def test_a_pass_that_others_need_cannot_be_left_out_silently(request_of):
    with pytest.raises(ConfigError, match="needs shapes, which nothing before it gives"):
        plan_passes(request_of(skip=("canonicalize.shapes",)), Silent())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("absent.py:f", "there is no file absent.py"),
        ("script.py", "must be file.py:function"),
        ("script:f", "must be file.py:function"),
    ],
)
def test_a_script_that_cannot_be_loaded_is_named(request_of, text, words):
    request = request_of()
    request = CompileRequest(model=request.model, passes=PassSelection(surgeons=(text,)))
    with pytest.raises(ConfigError, match=words):
        plan_passes(request, Silent())


def test_a_function_that_is_not_there_is_named(request_of):
    with pytest.raises(ConfigError, match="no attribute 'absent'"):
        plan_passes(request_of("absent"), Silent())


def test_a_recipe_joins_the_options(request_of, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[passes]\nskip = ["fuse.pad"]')
    request = request_of(skip=("fuse.clip-*",))
    request = CompileRequest(
        model=request.model, precision=Precision.FP32, passes=request.passes, recipe=recipe
    )
    names = [p.name for s in plan_passes(request, Silent()).stages for p in s.passes]
    assert "fuse.pad" not in names
    assert "fuse.clip-chain" not in names
    assert "fuse.conv-batchnorm" in names


def test_the_manifest_tells_the_selection(request_of, tmp_path):
    import json

    outcome = compile_model(request_of("drop_identity_of_abs", skip=("fuse.pad",)), Silent())
    options = json.loads((outcome.folder / "manifest.json").read_text())["options"]
    assert options["skip_pass"] == ["fuse.pad"]
    (surgeon,) = options["surgeons"]
    assert surgeon["function"] == "drop_identity_of_abs"
    assert surgeon["file"]["name"] == "script.py"
    assert len(surgeon["file"]["sha256"]) == 64
    np.testing.assert_equal(str(tmp_path) in json.dumps(options), False)
