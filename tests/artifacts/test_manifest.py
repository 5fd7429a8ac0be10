import hashlib
import json
from pathlib import Path

import pytest

from optcc.artifacts.manifest import (
    build_manifest,
    describe_source,
    is_ours,
    read_manifest,
    verify_folder,
)
from optcc.errors import ConfigError


def manifest(folder: Path, **options: object) -> bytes:
    facts = {"name": "m.onnx", "sha256": "0" * 64}
    return build_manifest(
        folder, input=facts, options=options, versions={"b": "2", "a": "1"}, seeds={"s": 0}
    )


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "out"
    (out / "openvino").mkdir(parents=True)
    (out / "model.onnx").write_bytes(b"model")
    (out / "openvino" / "model.xml").write_bytes(b"<net/>")
    data = manifest(out, precision="int8")
    (out / "manifest.json").write_bytes(data)
    report = {"manifest_sha256": hashlib.sha256(data).hexdigest()}
    (out / "report.json").write_text(json.dumps(report))
    (out / "report.html").write_text("<html/>")
    return out


def test_lists_every_file_but_report_and_itself(folder):
    content = read_manifest(folder)
    assert list(content["files"]) == ["model.onnx", "openvino/model.xml"]
    assert content["files"]["model.onnx"] == {
        "bytes": 5,
        "sha256": hashlib.sha256(b"model").hexdigest(),
    }


def test_same_bytes_wherever_the_folder_lies(tmp_path):
    made = []
    for name, order in (("one", "ab"), ("two", "ba")):
        folder = tmp_path / name
        folder.mkdir()
        for file in order:
            (folder / file).write_text(file)
        options = {"calib": folder / "data.npz", "seed": 1}
        made.append(manifest(folder, **dict(sorted(options.items(), reverse=name == "two"))))
    assert made[0] == made[1]
    assert str(tmp_path) not in made[0].decode()
    assert json.loads(made[0])["options"]["calib"] == "data.npz"


def test_numbers_that_json_does_not_know_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        manifest(tmp_path, max_drop=float("nan"))


def test_a_whole_folder_verifies(folder):
    assert verify_folder(folder) == []
    (folder / ".optcc-stage-00000000").mkdir()
    assert verify_folder(folder) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda f: (f / "model.onnx").write_bytes(b"Model"),
            "model.onnx differs from its recorded sha256",
        ),
        (lambda f: (f / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda f: (f / "more.bin").write_bytes(b""), "more.bin is not in the manifest"),
        (lambda f: (f / "report.json").write_text("{}"), "report.json belongs to another manifest"),
        (lambda f: (f / "report.json").write_text("{"), "report.json cannot be read"),
        (lambda f: (f / "report.json").write_text("[]"), "report.json cannot be read"),
        (lambda f: (f / "report.json").unlink(), "report.json is missing"),
    ],
)
def test_every_change_is_found(folder, change, problem):
    change(folder)
    assert verify_folder(folder) == [problem]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "other"}', '{"format": "optcc-manifest/1"}']
)
def test_other_manifests_are_not_ours(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    assert not is_ours(tmp_path)
    with pytest.raises(ConfigError, match=r"no manifest\.json of optcc"):
        verify_folder(tmp_path)


def test_a_source_is_described_by_its_content(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npz").write_bytes(b"a")
        (tmp_path / name / "1.npz").write_bytes(b"b")
    first, second = (describe_source(tmp_path / n) for n in ("one", "two"))
    assert first["sha256"] == second["sha256"]
    (tmp_path / "two" / "1.npz").write_bytes(b"c")
    assert describe_source(tmp_path / "two")["sha256"] != first["sha256"]
    file = describe_source(tmp_path / "one" / "0.npz")
    assert file == {"name": "0.npz", "sha256": hashlib.sha256(b"a").hexdigest()}
