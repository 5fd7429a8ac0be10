"""A finished folder under examination."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.request import CompileRequest, Precision
from optcc.driver import verify_output
from optcc.errors import ConfigError, UnsupportedModelError
from optcc.graph.io import read_model, write_model
from optcc.report.verification import FolderVerification, render_verification
from tests.driver.conftest import Notes, compiled, npz
from tests.driver.pairs import chain, edited, rehash


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place that holds an original, `a.onnx`, and what fp32 made of it, `out`."""
    place = tmp_path_factory.mktemp("made")
    request = CompileRequest(
        model=chain(place), out=place / "out", precision=Precision.FP32, backends=("onnxruntime",)
    )
    compiled(request, Notes())
    return place


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped example, compiled to int8 as `out`, with its data beside it."""
    from tests.driver.conftest import ROOT

    place = tmp_path_factory.mktemp("int8")
    for name in ("digits.onnx", "eval.npz"):
        shutil.copy(ROOT / "examples" / "digits" / name, place)
    shutil.copytree(ROOT / "calibration_data", place / "calibration_data")
    request = CompileRequest(
        model=place / "digits.onnx",
        out=place / "out",
        precision=Precision.INT8,
        evaluation=str(place / "eval.npz"),
        backends=("onnxruntime",),
    )
    compiled(request, Notes())
    return place


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is searched too: it must hold nothing."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "p"))


@pytest.fixture
def digits_place(int8: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(int8, tmp_path / "d"))


def failures(found: FolderVerification) -> list[tuple[str, str]]:
    return [(c.name, c.text) for c in found.checks if c.outcome == "failed"]


def numbers(found: FolderVerification) -> list[tuple[str, str]]:
    return [(c.outcome, c.text) for c in found.checks if c.name == "numbers"]


def test_a_folder_as_it_was_written_is_fine(place: Path) -> None:
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    found = verify_output(place / "out")
    assert found.fine
    assert (found.original, found.inputs) == ("a.onnx", "seeded inputs")
    assert [c.name for c in found.checks if c.outcome == "ok"] == ["files", "model", "numbers"]
    ((outcome, text),) = numbers(found)
    assert outcome == "ok"
    assert "equals a.onnx up to rounding" in text
    assert "report.html" in next(c.text for c in found.checks if c.outcome == "not checked")
    assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda out: (out / "trace.jsonl").write_text("{}"), "trace.jsonl differs from its rec"),
        (lambda out: (out / "trace.jsonl").unlink(), "trace.jsonl is missing"),
        (lambda out: (out / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda out: (out / "more.bin").write_text(""), "more.bin is not in the manifest"),
        (lambda out: (out / "report.json").unlink(), "report.json is missing"),
        (lambda out: (out / "report.json").write_text("{"), "report.json cannot be read"),
        (lambda out: _link_to_nowhere(out / "trace.jsonl"), "trace.jsonl is not a file"),
    ],
)
def test_each_harm_is_told_with_its_file(place: Path, harm, words: str) -> None:
    harm(place / "out")
    found = verify_output(place / "out")
    assert not found.fine
    assert any(words in text for _, text in failures(found))
    assert f"failed       {failures(found)[0][1]}" in render_verification(found)


def _link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def test_a_pipe_in_the_folder_does_not_hang(place: Path) -> None:
    (place / "out" / "trace.jsonl").unlink()
    os.mkfifo(place / "out" / "trace.jsonl")
    assert ("files", "trace.jsonl is not a file") in failures(verify_output(place / "out"))


def test_a_report_of_another_manifest(place: Path) -> None:
    path = place / "out" / "report.json"
    table = json.loads(path.read_text()) | {"manifest_sha256": "0" * 64}
    path.write_text(json.dumps(table))
    assert failures(verify_output(place / "out")) == [
        ("files", "report.json belongs to another manifest")
    ]


def swap(out: Path, **change: object) -> None:
    """Put an edited model where model.onnx is, with hashes that fit."""
    made = edited(out / "model.onnx", "tampered.onnx", **change)
    made.replace(out / "model.onnx")
    rehash(out)


def test_a_changed_weight_is_caught_though_all_hashes_fit(place: Path) -> None:
    swap(place / "out", weight="w2", factor=1.01)
    ((name, text),) = failures(verify_output(place / "out"))
    assert name == "numbers"
    assert text.startswith("model.onnx, output 'scores': error")


def test_without_the_original_such_a_change_is_said_to_be_unchecked(place: Path) -> None:
    swap(place / "out", weight="w2", factor=1.01)
    (place / "a.onnx").rename(place / "elsewhere.onnx")
    found = verify_output(place / "out")
    assert found.fine
    ((outcome, text),) = numbers(found)
    assert outcome == "not checked"
    assert "neither the original nor another model" in text
    assert not verify_output(place / "out", model=place / "elsewhere.onnx").fine


def test_a_file_of_the_same_name_is_not_the_original(place: Path) -> None:
    edited(place / "a.onnx", "a.onnx", weight="w1", factor=2.0)
    assert verify_output(place / "out").original == ""
    with pytest.raises(ConfigError, match=r"is not the model that .*out was made from"):
        verify_output(place / "out", model=place / "a.onnx")


def test_another_signature_is_told(place: Path) -> None:
    out = place / "out"
    model = read_model(out / "model.onnx")
    model.graph.inputs[0].shape = ir.Shape([4, 8])
    write_model(model, out / "model.onnx")
    rehash(out)
    ((name, text),) = failures(verify_output(out))
    assert name == "model"
    assert "its inputs are" in text


@pytest.mark.parametrize("content", [b"", b"no model at all", None])
def test_a_model_that_does_not_load(place: Path, content: bytes | None) -> None:
    path = place / "out" / "model.onnx"
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    rehash(place / "out")
    found = verify_output(place / "out")
    assert [name for name, _ in failures(found)] == ["model"]
    assert failures(found)[0][1].startswith("model.onnx: ")


def test_a_node_that_its_operator_does_not_allow(place: Path) -> None:
    out = place / "out"
    model = read_model(out / "model.onnx")
    next(n for n in model.graph if n.op_type == "Tanh").op_type = "Conv"
    write_model(model, out / "model.onnx")
    rehash(out)
    assert [name for name, _ in failures(verify_output(out))][:1] == ["model"]


def test_given_inputs_are_used_and_checked(place: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    found = verify_output(place / "out", inputs=npz(place / "rows.npz", x=rows))
    assert (found.fine, found.inputs) == (True, "rows.npz")
    with pytest.raises(ConfigError, match="does not exist"):
        verify_output(place / "out", inputs="none.npz")
    bad = npz(place / "bad.npz", x=np.ones((4, 3), np.float32))
    with pytest.raises(ConfigError, match=r"bad\.npz"):
        verify_output(place / "out", inputs=bad)


@pytest.mark.parametrize("kind", ["absent", "file", "empty", "foreign"])
def test_what_is_no_output_folder(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("")
    elif kind != "absent":
        path.mkdir()
    if kind == "foreign":
        (path / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(ConfigError, match=r"does not exist|is not a folder|no manifest of optcc"):
        verify_output(path)


def test_an_original_that_is_no_model(place: Path) -> None:
    (place / "text.onnx").write_text("no model")
    with pytest.raises(UnsupportedModelError):
        verify_output(place / "out", model=place / "text.onnx")


def test_what_a_killed_run_left_is_removed(place: Path) -> None:
    out, stage = place / "out", place / ".out.optcc-stage-0123abcd"
    stage.mkdir()
    (stage / "model.onnx").write_text("half")
    found = verify_output(out)
    assert found.fine
    assert not stage.exists()
    assert found.checks[0].name == "leftovers"
    assert stage.name in found.checks[0].text


def test_a_folder_whose_move_was_cut_short_is_restored(place: Path) -> None:
    (place / "out").rename(place / ".out.optcc-old")
    found = verify_output(place / "out")
    assert found.fine
    assert (place / "out" / "model.onnx").exists()


def test_int8_is_held_to_its_report_on_the_recorded_samples(digits_place: Path) -> None:
    found = verify_output(digits_place / "out")
    assert found.fine
    assert (found.original, found.inputs) == ("digits.onnx", "eval.npz")
    assert [o for o, _ in numbers(found)] == ["ok", "ok"]


def test_int8_without_samples_runs_within_its_ranges(digits_place: Path) -> None:
    (digits_place / "eval.npz").unlink()
    shutil.rmtree(digits_place / "calibration_data")
    found = verify_output(digits_place / "out")
    assert found.fine
    assert found.inputs == "seeded inputs within the calibrated ranges"
    assert [o for o, _ in numbers(found)] == ["ok", "ok"]


def test_int8_on_samples_held_back_gives_the_figures_of_the_report(digits_place: Path) -> None:
    request = CompileRequest(
        model=digits_place / "digits.onnx",
        out=digits_place / "again",
        precision=Precision.INT8,
        backends=("onnxruntime",),
    )
    report = compiled(request, Notes()).report
    found = verify_output(digits_place / "again")
    assert (found.fine, found.inputs) == (True, "digits.npz")
    for row, (outcome, text) in zip(report.accuracy.artifacts, numbers(found), strict=True):
        assert outcome == "ok"
        assert f"{row.outputs[0].sqnr_db:.1f} dB against digits.onnx" in text


def test_inputs_beyond_the_ranges_prove_nothing(digits_place: Path) -> None:
    """Bright noise is clipped: the loss is large, and no sign of a fault."""
    noise = np.random.default_rng(0).uniform(-8, 24, (64, 1, 8, 8)).astype(np.float32)
    path = npz(digits_place / "noise.npz", x=noise)
    found = verify_output(digits_place / "out", inputs=path)
    assert found.fine
    told = [(o, "leave its calibrated ranges" in t) for o, t in numbers(found)]
    assert told == [("not checked", True)] * 2
    real = np.load(digits_place / "eval.npz")["x"][:64]
    found = verify_output(digits_place / "out", inputs=npz(digits_place / "real.npz", x=real))
    assert [o for o, _ in numbers(found)] == ["ok"] * 2


def test_int8_without_the_original_compares_its_spellings(digits_place: Path) -> None:
    (digits_place / "digits.onnx").unlink()
    found = verify_output(digits_place / "out")
    assert found.fine
    ((outcome, text),) = numbers(found)
    assert outcome == "ok"
    assert "against model.onnx" in text


@pytest.mark.parametrize("original", [True, False])
def test_a_spoilt_int8_weight_is_caught_though_all_hashes_fit(
    digits_place: Path, original: bool
) -> None:
    out = digits_place / "out"
    model = read_model(out / "model.onnx")
    name, value = next(
        (n, v)
        for n, v in model.graph.initializers.items()
        if v.dtype == ir.DataType.INT8 and v.const_value.nbytes > 500
    )
    value.const_value = ir.tensor(np.flip(value.const_value.numpy(), 0).copy(), name=name)
    write_model(model, out / "model.onnx")
    rehash(out)
    if not original:
        (digits_place / "digits.onnx").unlink()
    assert [n for n, _ in failures(verify_output(out))] == ["numbers"]


def test_fp16_is_run_as_it_was_judged(place: Path) -> None:
    request = CompileRequest(
        model=place / "a.onnx",
        out=place / "half",
        precision=Precision.FP16,
        backends=("onnxruntime",),
    )
    out = compiled(request, Notes()).folder
    found = verify_output(out)
    assert found.fine
    assert [o for o, _ in numbers(found)] == ["ok", "ok"]
    level = next(t for _, t in numbers(found) if t.startswith("model.onnx,"))
    assert "dB against a.onnx" in level
    (place / "a.onnx").unlink()
    assert [o for o, _ in numbers(verify_output(out))] == ["ok"]


ENGINE_BYTES = 4096


def engine(out: Path, name: str, backend: bytes = b"vtrt", size: int = ENGINE_BYTES) -> None:
    """Write a file with the header of an engine for sm80, and let report and manifest know it."""
    head = bytearray(64)
    head[:4], head[24:28], head[32] = backend, bytes([1, 7, 1, 0]), 2
    head[16:24] = ENGINE_BYTES.to_bytes(8, "little")
    (out / name).write_bytes(bytes(head) + bytes(size - 64))


def known_engine(out: Path, name: str = "model.tensorrt_rtx.engine") -> Path:
    engine(out, name)
    path = out / "report.json"
    report = json.loads(path.read_text())
    row = dict(report["engines"][0])
    row |= {"backend": "tensorrt_rtx", "file": name, "bytes": ENGINE_BYTES, "targets": ["sm80"]}
    report["engines"].append(row)
    path.write_text(json.dumps(report))
    rehash(out)
    return out / name


def test_an_engine_is_looked_at_but_not_run(place: Path) -> None:
    known_engine(place / "out")
    found = verify_output(place / "out")
    assert found.fine, failures(found)
    (text,) = [c.text for c in found.checks if c.name == "engine"]
    assert "it was not run" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": ENGINE_BYTES - 8}, "cut off"),
        ({"size": ENGINE_BYTES + 8}, "declares 4096 bytes, it has 4104"),
        ({"backend": b"ftrt"}, "an engine of tensorrt, the report says tensorrt_rtx"),
        ({"backend": b"abcd"}, "not a TensorRT engine"),
    ],
)
def test_a_swapped_engine_is_caught_though_all_hashes_fit(
    place: Path, change: dict[str, object], words: str
) -> None:
    path = known_engine(place / "out")
    engine(place / "out", path.name, **change)
    found = verify_output(place / "out")
    assert ("files", f"{path.name} differs from its recorded sha256") in failures(found)
    rehash(place / "out")
    ((name, text),) = failures(verify_output(place / "out"))[:1]
    assert name == "engine"
    assert words in text


def test_names_that_lead_out_of_the_folder_are_not_followed(place: Path) -> None:
    path = place / "out" / "manifest.json"
    table = json.loads(path.read_text())
    table["files"]["../a.onnx"] = {"sha256": "", "bytes": 0}
    table["input"]["name"] = "../p/a.onnx"
    path.write_text(json.dumps(table))
    found = verify_output(place / "out")
    assert ("files", "../a.onnx is missing") in failures(found)
    assert found.original == ""


def test_the_fields_of_the_json_are_those_that_others_rely_on(place: Path) -> None:
    from optcc.cli.listing import to_json

    table = json.loads(to_json(verify_output(place / "out")))
    assert list(table) == ["schema_version", "folder", "fine", "original", "inputs", "checks"]
    assert {tuple(c) for c in table["checks"]} == {("name", "file", "outcome", "text")}
    assert table["schema_version"] == "1.0"
