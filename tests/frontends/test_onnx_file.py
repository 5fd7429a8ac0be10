"""frontends.onnx_file: sound models load; every other file is refused in one sentence."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from optcc.errors import ConfigError, ExitCode, OptccError, UnsupportedModelError
from optcc.frontends.onnx_file import load
from optcc.graph.io import to_bytes
from optcc.graph.lint import lint
from optcc.runtime.session import Session
from tests.models.small import shadowing

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
ADD = f"{HEAD} g (float[N,2] x) => (float[N,2] y) <float[2] w = {{1, 2}}> {{ y = Add(x, w) }}"


def save(folder: Path, text: str, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def refusal(path: Path, **options: Path) -> OptccError:
    with pytest.raises(OptccError) as error:
        load(path, **options)
    assert "\n" not in error.value.what
    assert len(error.value.what) < 320
    return error.value


def test_facts_of_a_sound_model(tmp_path: Path):
    path = save(tmp_path, ADD)
    loaded = load(path)
    assert (loaded.name, loaded.path, loaded.opset, loaded.ir_version) == (
        "model.onnx",
        path,
        17,
        8,
    )
    assert (loaded.nodes, loaded.parameters) == (1, 2)
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.nbytes == path.stat().st_size
    assert [s.dims for s in loaded.signature.inputs] == [("N", 2)]
    assert loaded.model.graph[0].name == "y.Add"
    assert lint(loaded.model, loaded.signature) == []


def test_the_file_is_not_touched(tmp_path: Path):
    path = save(tmp_path, ADD)
    before = path.read_bytes(), path.stat().st_mtime_ns
    load(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_nodes_in_any_order_are_sorted(tmp_path: Path):
    path = save(tmp_path, f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Neg(t) t = Relu(x) }}")
    model = load(path).model
    assert [n.op_type for n in model.graph] == ["Relu", "Neg"]


def test_minus_one_means_any_size(tmp_path: Path):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [-1, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert load(path).signature.inputs[0].dims == (None, 3)


def test_local_functions_are_inlined(tmp_path: Path):
    text = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[2] x) => (float[2] y) { y = mine.twice(x) }
    <domain: "mine", opset_import: ["" : 17]>
    twice (a) => (b) { b = Add(a, a) }"""
    loaded = load(save(tmp_path, text))
    assert [n.op_type for n in loaded.model.graph] == ["Add"]
    assert not loaded.model.functions


def test_names_are_made_unique(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(to_bytes(shadowing()))
    loaded = load(path)
    assert lint(loaded.model, loaded.signature) == []
    feed = {"x": np.float32([1, -2]), "c": np.array(True)}
    before, after = Session(path).run(feed), Session(to_bytes(loaded.model)).run(feed)
    np.testing.assert_array_equal(before["y"], after["y"])


def test_a_missing_path_is_a_usage_error(tmp_path: Path):
    error = refusal(tmp_path / "none.onnx")
    assert isinstance(error, ConfigError)
    assert error.exit_code == ExitCode.CONFIG
    assert "does not exist" in error.what


def test_a_folder_is_a_usage_error(tmp_path: Path):
    assert "is not a file" in refusal(tmp_path).what


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 not a model at all", "not a"),
        (b"\x00" * 100, "not a"),
        (b"hello", "not a"),
        (b"\x08\x08", "holds no graph"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, reason: str):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    error = refusal(path)
    assert isinstance(error, UnsupportedModelError)
    assert reason in error.what


def test_every_truncation_is_refused_or_loads(tmp_path: Path):
    whole = save(tmp_path, ADD).read_bytes()
    path = tmp_path / "cut.onnx"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert isinstance(refusal(path), UnsupportedModelError)


BAD_GRAPHS = {
    "cycle": (
        "g (float[2] x) => (float[2] y) { [one] a = Add(x, b) [two] b = Relu(a) y = Neg(b) }",
        "cycle: 'two' -> 'one'",
    ),
    "self-cycle": ("g (float[2] x) => (float[2] a) { [one] a = Add(x, a) }", "cycle: 'one'"),
    "undefined-input": (
        "g (float[2] x) => (float[2] y) { [one] y = Add(x, nothing) }",
        "node 'one' (Add) reads 'nothing', which nothing produces",
    ),
    "undefined-output": (
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) }",
        "output 'z'",
    ),
    "two-producers": (
        "g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }",
        "'y' is redeclared",
    ),
    "unknown-operator": (
        "g (float[2] x) => (float[2] y) { [one] y = Frobnicate(x) }",
        "node 'one' uses the unknown operator Frobnicate",
    ),
    "missing-attribute": (
        "g (float[2] x) => (float[2] y) { [one] y = Cast(x) }",
        "node 'one' (Cast)",
    ),
    "shape-mismatch": (
        "g (float[2,4] x, float[5,2] w) => (float[2,2] y) { [one] y = MatMul(x, w) }",
        "one",
    ),
    "type-mismatch": (
        "g (float[2] x, int64[2] i) => (float[2] y) { [one] y = Add(x, i) }",
        "one",
    ),
    "zero-stride": (
        "g (float[1,1,4,4] x, float[1,1,2,2] w) => (float y)"
        " { [one] y = Conv<strides = [0, 1]>(x, w) }",
        "node 'one' (Conv) has strides [0, 1]",
    ),
    "zero-group": (
        "g (float[1,1,4,4] x, float[1,1,2,2] w) => (float y) { [one] y = Conv<group = 0>(x, w) }",
        "node 'one' (Conv) has group 0",
    ),
    "subgraph-output-from-outside": (
        "g (float[2] x, bool c) => (float[2] y) { r = Relu(x) y = If (c) <"
        "then_branch = t () => (float[2] r) {}, else_branch = e () => (float[2] q) {q = Neg(x)}> }",
        "output 'r' of graph 't' is not produced in it",
    ),
    "ambiguous-name": (
        "g (float[2] x, bool c) => (float[2] y) { r = Relu(x) [choice] y = If (c) <"
        "then_branch = t () => (float[2] p) <float[2] r = {1, 2}> { p = Add(x, r) },"
        " else_branch = e () => (float[2] q) { q = Neg(r) }> }",
        "node 'choice' (If) holds a graph that defines 'r' again",
    ),
}


@pytest.mark.parametrize(("text", "reason"), BAD_GRAPHS.values(), ids=BAD_GRAPHS.keys())
def test_bad_graphs_are_refused_with_the_node(tmp_path: Path, text: str, reason: str):
    error = refusal(save(tmp_path, f"{HEAD} {text}"))
    assert isinstance(error, UnsupportedModelError)
    assert reason in error.what


def test_foreign_domains(tmp_path: Path):
    text = "g (float[2] x) => (float[2] y) { [one] y = other.Thing(x) }"
    head = HEAD.replace(": 17", ': 17, "other" : 1')
    assert "other::Thing" in refusal(save(tmp_path, f"{head} {text}")).what
    assert "does not import" in refusal(save(tmp_path, f"{HEAD} {text}")).what


def test_runtime_operators_are_asked_of_the_runtime(tmp_path: Path):
    head = HEAD.replace(": 17", ': 17, "com.microsoft" : 1')
    text = "g (float[2] x) => (float[2] y) { [one] y = com.microsoft.%s(x) }"
    assert load(save(tmp_path, f"{head} {text % 'Gelu'}")).nodes == 1
    assert "the runtime refuses" in refusal(save(tmp_path, f"{head} {text % 'NoSuch'}")).what


@pytest.mark.parametrize("opset", [6, 99])
def test_operator_sets_outside_the_range(tmp_path: Path, opset: int):
    error = refusal(save(tmp_path, ADD.replace(": 17", f": {opset}")))
    assert f"version {opset} is not supported, it must be 7 to 24" in error.what


def test_nan_weights_are_named(tmp_path: Path):
    model = onnx.parser.parse_model(ADD)
    weight = numpy_helper.from_array(np.float32([1, np.nan]), "w")
    model.graph.initializer[0].CopyFrom(weight)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    error = refusal(path)
    assert (error.what, error.where) == ("weight 'w' holds NaN", "tensor 'w'")


def test_infinite_mask_constants_are_fine(tmp_path: Path):
    model = onnx.parser.parse_model(ADD)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32([0, -np.inf]), "w"))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert load(path).parameters == 2


def test_sequences_at_the_border_are_refused(tmp_path: Path):
    text = f"{HEAD} g (float[2] x) => (seq(float[2]) y) {{ y = SequenceConstruct(x) }}"
    assert refusal(save(tmp_path, text)).what == "output 'y' is not a tensor"


def test_stale_shapes_do_not_refuse_a_model(tmp_path: Path):
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[N,2] x) => (float[N,2] y) {{ t = Relu(x) y = Neg(t) }}"
    )
    model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 9]))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    inner = load(path).model.graph[0].outputs[0]
    assert [str(d) for d in inner.shape] == ["N", "2"]


def test_a_wrong_claim_of_an_output_is_kept_and_not_believed(tmp_path: Path):
    text = f"{HEAD} g (float[2,3] x) => (float[2,7] y) {{ t = Relu(x) y = Neg(t) }}"
    loaded = load(save(tmp_path, text))
    assert loaded.signature.outputs[0].dims == (2, 7)
    assert loaded.model.graph[0].outputs[0].shape.numpy() == (2, 3)


def test_defaults_of_inputs_are_no_inputs(tmp_path: Path):
    model = onnx.parser.parse_model(ADD)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = load(path)
    assert [s.name for s in loaded.signature.inputs] == ["x"]
    assert isinstance(loaded.model, ir.Model)
