"""Reading the program text: from a made-up engine file, and from a real one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optcc.backends import trt_plan
from optcc.backends.trt_plan import Launch, operand_precision, read_plan
from tests.backends.build import build, needs_rtx, profile
from tests.models.quantized import quantized, small_cnn
from tests.models.sketch import Sketch

PROGRAM = r"""header {
  version = 5
  accelerators={sm80 }
}
descriptors {
  tensor={ dims={ 1 } name="a" offset=0 region="devmem_0" type=int8 }
  tensor={ dims={ 1 } name="w" offset=0 region=consts type=int8 }
  tensor={ dims={ 1 } name="c {odd}" offset=0 region="devmem_1" type=float }
  tensor={ dims={ 1 } name="n" offset=0 region="system_hmem" type=int64 }
}
main {
 label bb1:
  shape_call={ name="s" stream=0  layers="" }
  sub_tensor={ base="a" name="v^deref" stream=0 type=int8 }
  corrltn={ name="conv" output={"c {odd}" } input={"v^deref" "w" "n" } stream=0 \
layers="[ONNX Layer: co\"nv]US[ONNX Layer: w]dq]" }
  function={ name=__myl_Relu args={ "c {odd}" "a" } input_args={ "c {odd}" } \
output_args={ "a" } stream=0 layers="[ONNX Layer: relu]" swap_ab=false }
  mul={ name="m" output={"n" } input={"n" "n" } stream=0  layers="" }
}
shape_main {
  geq={ name="g" output={"n" } input={"n" } stream=0 layers="" }
}
""".replace("\\\n", "").replace("US", "\x1f")
BODY = PROGRAM.replace("{sm80 }", "{*}").replace("conv", "inner")


def engine(folder: Path, *programs: str, padding: int = 0) -> Path:
    path = folder / "made.engine"
    path.write_bytes(b"\0" * padding + b"\0\1".join(p.encode() for p in programs) + b"\0end")
    return path


def test_reads_statements_types_and_nodes(tmp_path: Path) -> None:
    plan = read_plan(engine(tmp_path, PROGRAM))
    assert [x.kind for x in plan.launches] == [
        "shape_call",
        "sub_tensor",
        "corrltn",
        "function",
        "mul",
    ]
    assert plan.launches[2] == Launch(
        kind="corrltn",
        name="conv",
        reads=("int8", "int8", "int64"),
        writes=("fp32",),
        nodes=('co"nv', "w]dq"),
        on_device=True,
    )
    assert operand_precision(plan.launches[2]) == "int8"


def test_shape_arithmetic_is_no_kernel(tmp_path: Path) -> None:
    plan = read_plan(engine(tmp_path, PROGRAM))
    assert [x.name for x in plan.kernels()] == ["conv", "__myl_Relu"]


def test_bodies_of_fused_kernels_are_no_launches(tmp_path: Path) -> None:
    plan = read_plan(engine(tmp_path, PROGRAM, BODY))
    assert len(plan.kernels()) == 2
    assert [x.name for x in plan.weighted()] == ["conv", "inner"]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(padding=st.integers(0, 300), chunk=st.integers(10, 300))
def test_the_size_of_reads_does_not_matter(
    padding: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_plan(engine(tmp_path, PROGRAM, BODY))
    with monkeypatch.context() as patch:
        patch.setattr(trt_plan, "_CHUNK", chunk)
        assert read_plan(engine(tmp_path, PROGRAM, BODY, padding=padding)) == whole


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(PROGRAM)), noise=st.binary(max_size=30))
def test_broken_text_never_raises(cut: int, noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.engine"
        path.write_bytes(PROGRAM.encode()[:cut] + noise + PROGRAM.encode()[cut:])
        read_plan(path)


def test_no_program_gives_an_empty_plan(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"ftrt" + bytes(range(256)) * 50)
    plan = read_plan(path)
    assert (plan.launches, plan.bodies) == ((), ())


@pytest.mark.parametrize(
    ("reads", "precision"),
    [
        (("int8", "int8", "fp32"), "int8"),
        (("int8", "fp16"), "fp16"),
        (("fp32", "int8"), "fp32"),
        (("?", "int8"), "unknown"),
        (("int8",), "unknown"),
    ],
)
def test_operand_precision_is_the_wider_of_two(reads: tuple[str, ...], precision: str) -> None:
    launch = Launch(
        kind="corrltn", name="", reads=reads, writes=("fp32",), nodes=(), on_device=True
    )
    assert operand_precision(launch) == precision


@needs_rtx
def test_a_real_program_names_its_nodes(tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=profile(x=(4, 3, 8, 8)))
    assert outcome.file is not None
    plan = read_plan(outcome.file)
    served = {node for kernel in plan.kernels() for node in kernel.nodes}
    assert served == {"conv", "relu", "pool", "flatten", "gemm"}
    assert all("?" not in (*x.reads, *x.writes) for x in plan.kernels())


@needs_rtx
@pytest.mark.parametrize("name", ["a]b", 'a"b', "a b={ c", "层/卷积", "a\\b", "a+b", "x" * 2000])
def test_odd_node_names_come_back_as_they_are(name: str, tmp_path: Path) -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.input("x", (4, 32)), sketch.weight("w", 32, 64), name=name)
    sketch.output(y, (4, 64))
    outcome = build(sketch.model(), tmp_path)
    assert [(n.node, n.got) for n in outcome.nodes] == [(name, "fp32")]


@needs_rtx
def test_int8_data_is_seen_in_a_real_program(tmp_path: Path) -> None:
    outcome = build(quantized("MatMul"), tmp_path)
    assert outcome.file is not None
    weighted = read_plan(outcome.file).weighted()
    assert [operand_precision(x) for x in weighted] == ["int8"]
