"""Two models on the same inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.driver import compare_models
from optcc.errors import ConfigError, UnsupportedModelError, VerificationError
from optcc.graph.edit import constant_of
from optcc.graph.io import read_model, write_model
from optcc.passkit.contract import Exactness, PassContext, PassResult, Rewrite
from optcc.pipeline.plan import Plan, Stage
from optcc.report.comparison import render_comparison
from optcc.runtime.session import Session
from tests.driver.conftest import Notes, compiled, npz
from tests.driver.pairs import chain, edited, from_text, output_folder, renamed
from tests.pipeline.passes_for_tests import Base, DropNodes, ScaleWeights, Spoil, registry

CLASSES = """g (float[N, 4] x) => (float[N, 4] scores, int64[N, 1] label) {
  scores = Softmax(x) label = ArgMax<axis = 1>(scores) }"""


def test_a_model_equals_itself_bit_by_bit(tmp_path: Path) -> None:
    a = chain(tmp_path)
    found = compare_models(a, a)
    (scores,) = found.outputs
    assert found.equal
    assert (scores.max_abs, scores.max_rel, scores.sqnr_db, scores.cosine) == (0, 0, None, 1)
    assert (scores.agreement, scores.note) == (1.0, "")
    assert found.bisection is None
    assert found.inputs == "seeded inputs"


def test_one_number_that_differs_by_a_hundredth_is_found_where_it_is(tmp_path: Path) -> None:
    a = chain(tmp_path)
    b = edited(a, "b.onnx", weight="w2", factor=1.01)
    found = compare_models(a, b, layers=True)
    (scores,) = found.outputs
    assert not found.equal
    assert scores.max_rel > scores.allowed > 0
    assert scores.sqnr_db > 20
    assert found.layers is not None
    assert (found.layers.first.node, found.layers.first.value) == ("second", "c")
    assert [r.equal for r in found.layers.rows] == [True, True, *[False] * 5]
    assert "they part at node 'second' (MatMul), value 'c'" in render_comparison(found)


def test_rounding_is_no_difference(tmp_path: Path) -> None:
    a = chain(tmp_path)
    model = read_model(a)
    for name, factor in (("w1", 1 + 2**-22), ("w3", 1 - 2**-22)):
        value = model.graph.initializers[name]
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(factor), name=name)
    write_model(model, tmp_path / "b.onnx")
    found = compare_models(a, tmp_path / "b.onnx", layers=True)
    assert found.equal
    assert found.outputs[0].sqnr_db is not None
    assert found.layers.first is None


def test_a_tolerance_stands_in_for_rounding(tmp_path: Path) -> None:
    a = chain(tmp_path)
    b = edited(a, "b.onnx", weight="w2", factor=1.01)
    wide = compare_models(a, b, tolerance=0.5, layers=True)
    assert wide.equal
    assert wide.layers.first is None
    error = wide.outputs[0].max_rel
    assert not compare_models(a, b, tolerance=error * 0.9).equal
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="--tolerance is"):
            compare_models(a, b, tolerance=wrong)


def test_other_names_inside_change_nothing(tmp_path: Path) -> None:
    a = chain(tmp_path)
    found = compare_models(a, renamed(a, "b.onnx"), layers=True)
    assert found.equal
    assert found.layers.compared == 1  # the output itself
    assert "they part nowhere" in render_comparison(found)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "g (float[N, 8] z) => (float[N, 8] scores) { scores = Neg(z) }",
            "input 'x' is in the fir",
        ),
        ("g (float[N, 8] x) => (float[N, 8] other) { other = Neg(x) }", "'other' is in the second"),
        (
            "g (float[N, 9] x) => (float[N, 8] scores) <int64[2] s = {-1, 8}> {"
            " scores = Reshape(x, s) }",
            r"input 'x' is float\[N, 8\] in the first model, float\[N, 9\] in the second",
        ),
        (
            "g (double[N, 8] x) => (float[N, 8] scores) { scores = Cast<to = 1>(x) }",
            r"double\[N, 8\] in the second",
        ),
        ("g (float[8] x) => (float[N, 8] scores) { scores = Neg(x) }", r"float\[8\] in the second"),
    ],
)
def test_models_that_take_or_give_other_things(tmp_path: Path, body: str, words: str) -> None:
    b = from_text(tmp_path, "b.onnx", body)
    with pytest.raises(ConfigError, match=words):
        compare_models(chain(tmp_path), b)


def test_a_free_size_goes_with_a_fixed_one(tmp_path: Path) -> None:
    a, b = chain(tmp_path), chain(tmp_path, "b.onnx", batch="5")
    assert compare_models(a, b).equal
    assert compare_models(b, a).equal


def test_sizes_of_dynamic_inputs(tmp_path: Path) -> None:
    body = "g (float[N, K] x) => (float[N, K] y) { y = Relu(x) }"
    a, b = from_text(tmp_path, "a.onnx", body), from_text(tmp_path, "b.onnx", body)
    assert compare_models(a, b).equal
    assert compare_models(a, b, shapes="x:1x7..3x9").equal
    with pytest.raises(ConfigError, match="--shapes"):
        compare_models(a, b, shapes="x:1x7x2")
    with pytest.raises(ConfigError, match="--shapes names 'z'"):
        compare_models(a, b, shapes="z:1")


def test_whole_numbers_go_in_and_come_out(tmp_path: Path) -> None:
    body = """g (int64[N, 3] ids) => (float[N, 3, 2] y, int64[N, 3] next)
      <float[5, 2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, int64 one = {%d}> {
      y = Gather<axis = 0>(table, ids) next = Add(ids, one) }"""
    a, b = (from_text(tmp_path, f"{k}.onnx", body % k) for k in (1, 2))
    assert compare_models(a, a).equal
    found = compare_models(a, b)
    assert [o.equal for o in found.outputs] == [True, False]
    assert "values differ" in found.outputs[1].note
    wide = compare_models(a, b, tolerance=10.0)
    assert wide.equal


def test_classes_are_counted(tmp_path: Path) -> None:
    a = from_text(tmp_path, "a.onnx", CLASSES)
    turned = CLASSES.replace("scores = Softmax(x)", "t = Neg(x) scores = Softmax(t)")
    found = compare_models(a, from_text(tmp_path, "b.onnx", turned))
    assert [o.agreement < 0.7 for o in found.outputs] == [True, True]
    assert not found.equal


@pytest.mark.parametrize("turn", [False, True])
def test_numbers_that_are_none_in_one_model(tmp_path: Path, turn: bool) -> None:
    body = "g (float[N, 8] x) => (float[N, 8] y) { a = %s(x) y = Log(a) }"
    files = [from_text(tmp_path, f"{op}.onnx", body % op) for op in ("Abs", "Neg")]
    found = compare_models(*(files[::-1] if turn else files))
    assert not found.equal
    assert "finite in one model only" in found.outputs[0].note
    none = compare_models(files[1], files[1], layers=True)
    assert none.equal


def test_being_equal_may_prove_little_and_says_so(tmp_path: Path) -> None:
    a = from_text(tmp_path, "a.onnx", "g (float[N, 8] x) => (float[N, 8] y) { y = Sub(x, x) }")
    found = compare_models(a, a)
    assert found.equal
    assert found.outputs[0].note == "the reference is zero"


def test_random_numbers_cannot_be_compared(tmp_path: Path) -> None:
    body = "g (float[2, 8] x) => (float[2, 8] y) { r = RandomNormalLike(x) y = Add(x, r) }"
    a = from_text(tmp_path, "a.onnx", body)
    found = compare_models(a, a)
    assert not found.equal
    assert "random" in found.outputs[0].note


def test_given_inputs(tmp_path: Path) -> None:
    a = chain(tmp_path)
    rows = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    found = compare_models(a, a, inputs=npz(tmp_path / "rows.npz", x=rows))
    assert (found.samples, found.inputs) == (20, "rows.npz")
    with pytest.raises(ConfigError, match=r"--inputs no\.npz does not exist"):
        compare_models(a, a, inputs="no.npz")
    with pytest.raises(ConfigError, match=r"rows9\.npz"):
        compare_models(a, a, inputs=npz(tmp_path / "rows9.npz", x=np.ones((4, 9), np.float32)))


def test_files_that_are_no_models(tmp_path: Path) -> None:
    a = chain(tmp_path)
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(UnsupportedModelError, match=r"text\.onnx is not"):
        compare_models(a, tmp_path / "text.onnx")
    with pytest.raises(ConfigError, match="does not exist"):
        compare_models(tmp_path / "none.onnx", a)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"holds no model\.onnx"):
        compare_models(a, tmp_path / "empty")


def test_a_model_that_does_not_run_where_the_first_does(tmp_path: Path) -> None:
    a = from_text(tmp_path, "a.onnx", "g (float[N, 8] x) => (float[N, M] y) { y = Relu(x) }")
    body = """g (float[N, 8] x) => (float[N, M] y) <int64[2] s = {3, -1}> {
      flat = Reshape(x, s) y = Relu(flat) }"""
    b = from_text(tmp_path, "b.onnx", body)
    with pytest.raises(VerificationError, match=r"b\.onnx does not run where a\.onnx does"):
        compare_models(a, b)
    with pytest.raises(UnsupportedModelError, match=r"cannot run b\.onnx"):
        compare_models(b, a, inputs=npz(tmp_path / "rows.npz", x=np.ones((2, 8), np.float32)))


class ScaleOne(Base):
    """Scale the weight of one MatMul, and report it as what it is: one rewrite of a region."""

    exactness = Exactness.ROUNDING

    def __init__(self, node: str, factor: float, name: str = "test.wrong") -> None:
        self.node, self.factor, self.name = node, factor, name

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        if model.metadata_props.get(self.name):
            return result
        model.metadata_props[self.name] = "done"
        for node in [n for n in model.graph if n.op_type == "MatMul"]:
            rewrite = Rewrite(node.name or "", "scaled", (node.inputs[0],), (node.outputs[0],))
            factor = self.factor if node.name == self.node else 1.0
            if ctx.apply(rewrite, lambda n=node, f=factor: self._scale(n, f)):
                result.rewrites.append(rewrite)
        return result

    @staticmethod
    def _scale(node: ir.Node, factor: float) -> list[ir.Value]:
        weight = node.inputs[1]
        array = constant_of(weight) * np.float32(factor)
        weight.const_value = ir.tensor(array, name=weight.name)
        return list(node.outputs)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An original and an OUT that the given passes made of it, unchecked as in a buggy version."""

    def make(*passes: Base, weight: str = "", factor: float = 1.0) -> tuple[Path, Path]:
        a = chain(tmp_path)
        b = edited(a, "made.onnx", weight=weight, factor=factor) if weight else a
        stage = Stage(name="s", passes=tuple(p.name for p in passes), repeat_until_stable=3)
        monkeypatch.setattr(
            "optcc.driver.bisection.planned",
            lambda precision, selection: (Plan(precision.value, (stage,)), registry(*passes)),
        )
        return a, output_folder(tmp_path / "out", a, read_model(b))

    return make


def test_a_wrong_pass_is_found_with_the_rewrite_and_the_region(recorded, tmp_path: Path) -> None:
    drop, wrong = DropNodes(), ScaleOne("second", 1.01)
    a, out = recorded(drop, wrong, weight="w2", factor=1.01)
    target = tmp_path / "deep" / "repro"
    found = compare_models(a, out, reproducer=target)
    assert not found.equal
    assert (found.bisection.name, found.bisection.node) == ("test.wrong", "second")
    assert (found.bisection.stage, found.bisection.lossy) == ("s", False)
    assert found.bisection.reproducer == target.as_posix()
    before, after = (read_model(target / f"{n}.onnx") for n in ("before", "after"))
    assert [n.op_type for n in before.graph] == ["MatMul"], "the region alone"
    assert [n.op_type for n in after.graph] == ["MatMul"]
    with np.load(target / "feeds_0.npz") as feeds:
        feed = dict(feeds)
    results = [Session(target / f"{n}.onnx").run(feed) for n in ("before", "after")]
    assert any(not np.allclose(r, s) for r, s in zip(*(d.values() for d in results), strict=True))


def test_a_fault_without_a_region_leaves_whole_models(recorded, tmp_path: Path) -> None:
    def spoil(model: ir.Model) -> None:
        ScaleWeights(1.5, only="third").run(model, NoCheck())

    a, out = recorded(DropNodes(), Spoil(spoil), weight="w3", factor=1.5)
    found = compare_models(a, out, reproducer=tmp_path / "repro")
    assert found.bisection.name == "test.spoil"
    before, after = (read_model(tmp_path / "repro" / f"{n}.onnx") for n in ("before", "after"))
    assert len(list(before.graph)) == len(list(after.graph)) == 5
    assert not compare_models(tmp_path / "repro/before.onnx", tmp_path / "repro/after.onnx").equal


class NoCheck:
    def apply(self, rewrite, action):
        action()
        return True


def test_a_model_that_was_edited_afterwards_is_nobody_s_fault(recorded, tmp_path: Path) -> None:
    a, out = recorded(DropNodes(), weight="w1", factor=1.1)
    found = compare_models(a, out, reproducer=tmp_path / "repro")
    assert found.bisection.name == ""
    assert "model.onnx is not what it makes" in found.bisection.note
    assert not (tmp_path / "repro").exists()


def test_another_original_is_not_bisected(recorded, tmp_path: Path) -> None:
    a, out = recorded(DropNodes(), weight="w1", factor=1.1)
    other = edited(a, "other.onnx", weight="w3", factor=3.0)
    assert compare_models(other, out).bisection is None
    asked = compare_models(other, out, reproducer=tmp_path / "repro")
    assert "no pass can be named" in asked.bisection.note


def test_a_reproducer_never_overwrites(tmp_path: Path) -> None:
    a = chain(tmp_path)
    with pytest.raises(ConfigError, match="exists already"):
        compare_models(a, a, reproducer=tmp_path)
    fresh = compare_models(a, a, reproducer=tmp_path / "new")
    assert fresh.notes == ["there is nothing to reproduce"]
    assert not (tmp_path / "new").exists()


def test_int8_leaves_the_allowance_on_purpose(digits: CompileRequest, notes: Notes) -> None:
    out = compiled(replace(digits, precision=Precision.INT8), notes).folder
    found = compare_models(digits.model, out)
    assert (found.bisection.stage, found.bisection.name) == ("lower-tensorrt", "lower.tensorrt")
    assert found.bisection.lossy
    cpu = compare_models(digits.model, out / "model.onnxruntime.onnx")
    assert cpu.bisection.name == "lower.onnxruntime"
    (out / "ranges.json").unlink()
    assert "needs calibration ranges" in compare_models(digits.model, out).bisection.note


def test_fp32_stays_within_rounding(digits: CompileRequest, notes: Notes) -> None:
    out = compiled(replace(digits, precision=Precision.FP32), notes).folder
    found = compare_models(digits.model, out, layers=True)
    assert found.equal
    assert found.layers.first is None
    assert found.layers.compared > 10


def test_the_fields_of_the_json_are_those_that_others_rely_on(tmp_path: Path) -> None:
    from optcc.cli.listing import to_json

    a = chain(tmp_path)
    found = compare_models(a, edited(a, "b.onnx", weight="w2", factor=1.01), layers=True)
    table = json.loads(to_json(found))
    assert list(table) == [
        "schema_version",
        "first",
        "second",
        "inputs",
        "samples",
        "allowance",
        "equal",
        "outputs",
        "layers",
        "bisection",
        "notes",
    ]
    assert table["schema_version"] == "1.0"
    assert set(table["layers"]) == {"compared", "first", "rows"}
    assert set(table["outputs"][0]) >= {"name", "max_abs", "max_rel", "sqnr_db", "cosine", "equal"}
