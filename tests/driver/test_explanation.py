"""Why nodes are changed or left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.driver import explain
from optcc.errors import ConfigError, UnsupportedModelError, VerificationError
from optcc.graph.io import write_model
from optcc.passkit.contract import PassContext, PassResult, Rejection
from optcc.pipeline.plan import Plan, Stage
from optcc.report.explanation import Explanation, render_explanation
from tests.driver.conftest import Notes, compiled
from tests.models.layers import residual_block
from tests.models.regions import conv_bn, text
from tests.pipeline.passes_for_tests import Base, DropNodes, Spoil, registry

TWO_ROUNDS = """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
  [stay] a = Neg(x) [late] b = Identity(a) [out] y = Relu(b) [also] z = Tanh(x) }"""


def file(model: ir.Model, folder: Path) -> Path:
    write_model(model, folder / "m.onnx")
    return folder / "m.onnx"


def conv_bn_seen(folder: Path) -> Path:
    """Conv -> BatchNormalization, and the Conv's result is an output of the model too."""
    model = conv_bn()
    conv = next(n for n in model.graph if n.op_type == "Conv")
    conv.name = "conv"
    conv.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    conv.outputs[0].shape = model.graph.outputs[0].shape
    model.graph.outputs.append(conv.outputs[0])
    return file(model, folder)


def by_pass(found: Explanation) -> dict[str, tuple[list[str], list[str]]]:
    return {
        p.name: ([c.node for c in p.rewrites], [m.node for m in p.left_alone]) for p in found.passes
    }


def test_a_fusion_is_told_with_the_nodes_that_it_joins(tmp_path: Path) -> None:
    model = conv_bn()
    names = {n.op_type: n.name for n in model.graph}
    found = explain(file(model, tmp_path))
    (one,) = next(p for p in found.passes if p.name == "fuse.conv-batchnorm").rewrites
    assert one.node == names["BatchNormalization"]
    assert set(one.merged) == set(names.values())
    assert one.into == (names["Conv"],)
    assert not list(tmp_path.glob("*.optcc*"))


def test_a_result_that_is_also_an_output_is_a_near_miss(tmp_path: Path) -> None:
    found = explain(conv_bn_seen(tmp_path), passes="fuse.conv-batchnorm")
    ((name, (rewrites, left)),) = by_pass(found).items()
    assert (name, rewrites, len(left)) == ("fuse.conv-batchnorm", [], 1)
    reason = found.passes[0].left_alone[0].reason
    assert "output" in reason
    assert f"left alone: {left[0]}: {reason}" in render_explanation(found)


def test_what_was_merged_into_a_node_concerns_it(tmp_path: Path) -> None:
    model = conv_bn()
    names = {n.op_type: n.name or "" for n in model.graph}
    path = file(model, tmp_path)
    for asked in (names["Conv"], names["BatchNormalization"]):
        found = explain(path, node=asked)
        assert by_pass(found)["fuse.conv-batchnorm"][0] == [names["BatchNormalization"]]
    assert found.notes == [f"{names['BatchNormalization']!r} is part of {names['Conv']!r} now"]


def test_a_node_that_nothing_touched_gets_a_sentence(tmp_path: Path) -> None:
    found = explain(file(text(TWO_ROUNDS), tmp_path), node="also")
    assert found.passes == []
    assert render_explanation(found) == "no pass changed 'also' or came near to it\n"


def test_a_node_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    found = explain(file(text(TWO_ROUNDS), tmp_path), node="late")
    assert by_pass(found) == {"eliminate.identity": (["late"], [])}
    assert found.notes == ["'late' is not in the optimized graph any more"]


@pytest.mark.parametrize(
    ("asked", "hint"), [("alsoo", "did you mean 'also'?"), ("b", "its node is 'late'")]
)
def test_an_unknown_node_is_an_error_with_a_suggestion(tmp_path, asked: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"no node '{asked}'") as caught:
        explain(file(text(TWO_ROUNDS), tmp_path), node=asked)
    assert caught.value.hint == hint


def test_passes_by_name_and_glob(tmp_path: Path) -> None:
    path = file(text(TWO_ROUNDS), tmp_path)
    assert list(by_pass(explain(path, passes="eliminate.*"))) == ["eliminate.identity"]
    silent = explain(path, passes="fuse.pad")
    assert by_pass(silent) == {"fuse.pad": ([], [])}
    assert silent.notes == ["'fuse.pad' found nothing to change"]
    with pytest.raises(ConfigError, match=r"no pass 'fuse\.pax'") as caught:
        explain(path, passes="fuse.pax")
    assert caught.value.hint == "did you mean 'fuse.pad'?"
    with pytest.raises(ConfigError, match="none of the stages canonicalize, simplify"):
        explain(path, passes="lower.tensorrt")


def test_int8_says_of_each_heavy_node_what_it_runs_in_and_why(tmp_path: Path) -> None:
    path = file(residual_block(), tmp_path)
    heavy = {h.node: h for h in explain(path, precision=Precision.INT8).heavy}
    assert {h.wanted for h in heavy.values()} == {"int8"}
    assert set(heavy) == {"stem", "first", "second", "head"}
    assert explain(path).heavy == []


ATTENTION = """g (float[2, 8, 16] x) => (float[2, 8, 8] y) {
  [turn] t = Transpose<perm = [0, 2, 1]>(x) [core] y = MatMul(x, t) }"""


def test_int8_says_why_a_node_stays_in_float(tmp_path: Path) -> None:
    found = explain(file(text(ATTENTION), tmp_path), precision=Precision.INT8, node="core")
    (reason,) = [h.reason for h in found.heavy]
    assert "attention core" in reason
    assert f"core (MatMul): fp32, {reason}" in render_explanation(found)
    assert "int8: 0 of 1 heavy node\n" in render_explanation(found)


def test_a_model_that_is_quantized_already_is_refused(tmp_path: Path) -> None:
    body = """g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}> {
      q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    with pytest.raises(UnsupportedModelError, match="already quantized"):
        explain(file(text(body), tmp_path), precision=Precision.INT8)


def test_a_folder_is_read_and_agrees_with_the_model(digits: CompileRequest, notes: Notes) -> None:
    folder = compiled(replace(digits, precision=Precision.INT8), notes).folder
    before = {p: p.read_bytes() for p in folder.iterdir()}
    read, run = explain(folder), explain(digits.model, precision=Precision.INT8)
    assert read.precision == "int8"
    assert read.heavy == run.heavy
    early = [p for p in read.passes if p.name in by_pass(run)]
    assert early == run.passes
    assert "lower.tensorrt" in by_pass(read)
    batchnorm = next(p for p in run.passes if p.name == "fuse.conv-batchnorm").rewrites[0]
    assert explain(folder, node=batchnorm.node).notes == [
        f"{batchnorm.node!r} is part of {batchnorm.into[0]!r} now"
    ]
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


def test_a_folder_of_another_precision(digits: CompileRequest, notes: Notes) -> None:
    folder = compiled(replace(digits, precision=Precision.FP32), notes).folder
    with pytest.raises(ConfigError, match="was compiled with --precision fp32, not int8"):
        explain(folder, precision=Precision.INT8)


@pytest.mark.parametrize("trace", ["", "no json\n", "[]\n", '{"event":"rewrite"}\n', None])
def test_a_damaged_folder_is_an_error_or_empty(saved, notes: Notes, trace: str | None) -> None:
    folder = compiled(saved(TINY), notes).folder
    path = folder / "trace.jsonl"
    path.unlink() if trace is None else path.write_text(trace)
    if trace == "":
        assert "no pass found anything to change" in render_explanation(explain(folder))
        return
    with pytest.raises(ConfigError, match=r"trace\.jsonl"):
        explain(folder)


TINY = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { y = Neg(x) }'


def test_a_folder_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no report\.json"):
        explain(tmp_path)


class Hesitant(Base):
    """Refuses every Identity and Neg in the first round; drops each Identity in the next."""

    name = "test.hesitant"

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        if model.metadata_props.get(self.name):
            return DropNodes("Identity", self.name).run(model, ctx)
        model.metadata_props[self.name] = "seen"
        names = [n.name for n in model.graph if n.op_type in ("Identity", "Neg")]
        return PassResult([], [Rejection(n, "not yet") for n in names])


@pytest.fixture
def own_passes(monkeypatch: pytest.MonkeyPatch):
    def use(*passes: Base, repeats: int = 4) -> None:
        stage = Stage(name="s", passes=tuple(p.name for p in passes), repeat_until_stable=repeats)
        monkeypatch.setattr(
            "optcc.driver.rehearsal.planned",
            lambda precision, selection: (Plan(precision.value, (stage,)), registry(*passes)),
        )

    return use


LATE = "g (float[4] x) => (float[4] y) { [late] c = Identity(x) [neg] y = Neg(c) }"


def test_only_near_misses_that_still_stand_are_shown(tmp_path: Path, own_passes) -> None:
    own_passes(Hesitant(), Spoil(lambda model: None))
    found = explain(file(text(LATE), tmp_path))
    assert by_pass(found) == {"test.hesitant": (["late"], []), "test.spoil": (["whole"], [])}


def test_a_near_miss_of_a_node_that_is_gone_is_not_shown(tmp_path: Path, own_passes) -> None:
    own_passes(Hesitant(), DropNodes("Identity", "test.drop"), repeats=1)
    found = explain(file(text(LATE), tmp_path))
    assert by_pass(found) == {"test.hesitant": ([], ["neg"]), "test.drop": (["late"], [])}


def test_a_pass_that_breaks_its_promise_is_an_error(tmp_path: Path, own_passes) -> None:
    bad = DropNodes("Neg", "test.bad")
    own_passes(bad)
    body = "g (float[4] x) => (float[4] y) { [a] p = Exp(x) [neg] y = Neg(p) }"
    with pytest.raises(
        VerificationError, match=r"'test\.bad' broke its promise at 'neg'"
    ) as caught:
        explain(file(text(body), tmp_path))
    assert "--keep-going" not in (caught.value.hint or "")


def test_the_fields_of_the_json_are_those_that_others_rely_on(tmp_path: Path) -> None:
    from optcc.cli.listing import to_json

    table = json.loads(to_json(explain(conv_bn_seen(tmp_path), precision=Precision.INT8)))
    assert list(table) == [
        "schema_version",
        "source",
        "precision",
        "node",
        "stages",
        "passes",
        "heavy",
        "notes",
    ]
    assert (table["schema_version"], table["source"]) == ("1.0", "m.onnx")
    assert table["stages"] == ["canonicalize", "simplify", "quantize"]
    rows = [p for p in table["passes"] if p["left_alone"]]
    assert {tuple(p) for p in rows} == {("name", "rewrites", "left_alone")}
    assert {tuple(m) for p in rows for m in p["left_alone"]} == {("node", "reason")}
    assert {tuple(h) for h in table["heavy"]} == {("node", "op_type", "wanted", "reason")}
