"""graph.io: the same bytes for the same graph, and no data is lost or believed without a look."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.errors import UnsupportedModelError, WriteError
from optcc.graph import io
from optcc.graph.digest import digest
from optcc.graph.edit import add_constant
from tests.models.external import external_model, write_data
from tests.models.small import chain, with_if


def with_weight(array: np.ndarray | ir.TensorProtocol) -> ir.Model:
    model = chain("Relu")
    add_constant(model.graph, "w", array)
    return model


def stored(path: Path) -> np.ndarray:
    return io.read_model(path).graph.initializers["w"].const_value.numpy()


def test_same_bytes_in_two_processes(tmp_path: Path):
    script = (
        "import sys; from tests.models.small import with_if; from optcc.graph.io import to_bytes;"
        "sys.stdout.buffer.write(to_bytes(with_if()))"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] == io.to_bytes(with_if())


def test_large_weights_go_beside_the_model(tmp_path: Path):
    array = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)
    model = with_weight(array)
    add_constant(model.graph, "small", np.float32([1, 2]))
    before = io.to_bytes(model)
    files = io.write_model(model, tmp_path / "m.onnx", external_above=1000)
    assert [f.name for f in files] == ["m.onnx", "m.onnx.data"]
    assert files[0].stat().st_size < 1000
    assert io.to_bytes(model) == before
    np.testing.assert_array_equal(stored(files[0]), array)
    onnx.checker.check_model(str(files[0]))
    again = io.write_model(model, tmp_path / "m2.onnx", external_above=1000)
    assert again[1].read_bytes() == files[1].read_bytes()


def test_small_models_are_one_file(tmp_path: Path):
    files = io.write_model(with_weight(np.ones(4, np.float32)), tmp_path / "m.onnx")
    assert files == [tmp_path / "m.onnx"]
    assert stored(files[0]).tolist() == [1, 1, 1, 1]


def test_a_place_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(WriteError, match=r"cannot write m\.onnx"):
        io.write_model(chain("Relu"), tmp_path / "no" / "m.onnx")


TYPES = [
    np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.bool_,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4,
]  # fmt: skip


@given(dtype=st.sampled_from(TYPES), dims=st.lists(st.integers(0, 5), max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_type_survives_external_data(dtype: type, dims: list[int], tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    values = np.random.default_rng(1).integers(0, 4, dims)
    array = values.astype(dtype)
    dtype_ir = ir.DataType.from_numpy(np.dtype(dtype))
    tensor = ir.Tensor(array, dtype_ir, shape=ir.Shape(dims), name="w")
    model = with_weight(tensor)
    slim = io._move_weights(model, folder / "w.bin")
    value = slim.graph.initializers["w"]
    if not isinstance(value.const_value, ir.ExternalTensor):
        (folder / "w.bin").write_bytes(tensor.tobytes())
        value.const_value = io._elsewhere(tensor, "w.bin", 0)
    (folder / "m.onnx").write_bytes(io.to_bytes(slim))
    got = stored(folder / "m.onnx")
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got.astype(np.float64), array.astype(np.float64))


def test_digest_does_not_depend_on_the_layout(tmp_path: Path):
    model = with_weight(np.arange(2000, dtype=np.float32))
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    io.write_model(model, one)
    io.write_model(model, two, external_above=10)
    assert digest(io.read_model(one)) == digest(io.read_model(two)) == digest(model)
    model.graph.initializers["w"].const_value = ir.tensor(np.zeros(2000, np.float32), name="w")
    assert digest(model) != digest(io.read_model(one))


def broken(tmp_path: Path, change) -> str:
    model = onnx.load_from_string(io.to_bytes(with_weight(np.ones((2, 3), np.float32))))
    change(model.graph.initializer[0], model)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedModelError) as error:
        io.read_model(path)
    return error.value.what


BROKEN = {
    "short-data": (lambda t, m: setattr(t, "raw_data", b"\0" * 20), "holds 20"),
    "bad-type": (lambda t, m: setattr(t, "data_type", 77), "unknown element type 77"),
    "no-type": (lambda t, m: setattr(t, "data_type", 0), "no element type"),
    "negative-dim": (lambda t, m: t.dims.__setitem__(0, -2), "dims [-2, 3]"),
    "huge-dim": (lambda t, m: t.dims.__setitem__(0, 2**62), "holds 24"),
    "no-name": (lambda t, m: setattr(t, "name", ""), "'' has no name"),
    "twice": (lambda t, m: m.graph.initializer.add().CopyFrom(t), "'w' appears twice"),
    "sparse": (lambda t, m: m.graph.sparse_initializer.add().values.CopyFrom(t), "is sparse"),
    "old-format": (lambda t, m: setattr(m, "ir_version", 2), "IR version 2"),
}


@pytest.mark.parametrize(("change", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_malformed_tensors_are_named(tmp_path: Path, change, reason: str):
    assert reason in broken(tmp_path, change)


def test_external_constants_of_nodes_are_mapped(tmp_path: Path):
    path = external_model(tmp_path / "m.onnx", "w.bin")
    write_data(tmp_path / "w.bin")
    model = onnx.load(str(path), load_external_data=False)
    node = model.graph.node.add(op_type="Constant", output=["k"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(
        model.graph.initializer[0]
    )
    path.write_bytes(model.SerializeToString())
    tensor = io.read_model(path).graph[-1].attributes["value"].as_tensor()
    assert not isinstance(tensor, ir.ExternalTensor)
    assert tensor.numpy().sum() == 66


def test_clone_shares_weights_and_nothing_else():
    model = with_weight(np.ones(3, np.float32))
    copy = io.clone(model)
    assert io.to_bytes(copy) == io.to_bytes(model)
    copy.graph[0].outputs[0].name = "other"
    assert model.graph.outputs[0].name == "y"
    assert copy.graph.initializers["w"].const_value is model.graph.initializers["w"].const_value


def test_check_names_the_node():
    model = chain("Relu", "Neg")
    model.graph[0].attributes.add(ir.AttrInt64("axis", 1))
    model.graph[0].name = "first"
    problems = io.check(model)
    assert len(problems) == 1
    assert problems[0].startswith("node 'first' (Relu): ")


def test_names_that_are_no_text_are_refused(tmp_path: Path):
    data = io.to_bytes(chain("Relu", "Neg")).replace(b"v0", b"\xfa0")
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match="is not valid text"):
        io.read_model(path)


def test_attributes_without_a_type_are_refused(tmp_path: Path):
    model = onnx.load_from_string(io.to_bytes(chain("Relu")))
    model.graph.node[0].attribute.add(name="axis", i=1)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedModelError, match="attribute 'axis' has no type"):
        io.read_model(path)
