"""graph.external: only data files of the model's own folder are read, and exactly those."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from optcc.errors import UnsupportedModelError
from optcc.graph.io import read_model
from tests.models.external import WEIGHT, external_model, write_data


def weight(path: Path, **options: Path) -> np.ndarray:
    return read_model(path, **options).graph.initializers["w"].const_value.numpy()


def refusal(path: Path, **options: Path) -> UnsupportedModelError:
    with pytest.raises(UnsupportedModelError) as error:
        read_model(path, **options)
    assert error.value.where == "tensor 'w'"
    return error.value


def test_beside_the_model_at_an_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = external_model(tmp_path / "m" / "model.onnx", "w.bin", offset=64, length=48)
    write_data(tmp_path / "m" / "w.bin", before=64)
    np.testing.assert_array_equal(weight(path), WEIGHT)
    monkeypatch.chdir(path.parent)
    np.testing.assert_array_equal(weight(Path("model.onnx")), WEIGHT)


def test_in_a_folder_below(tmp_path: Path):
    path = external_model(tmp_path / "model.onnx", "data/w.bin")
    write_data(tmp_path / "data" / "w.bin")
    np.testing.assert_array_equal(weight(path), WEIGHT)


def test_the_array_is_a_view_of_the_file(tmp_path: Path):
    path = external_model(tmp_path / "model.onnx", "w.bin")
    write_data(tmp_path / "w.bin")
    array = weight(path)
    assert not array.flags.writeable
    assert not array.flags.owndata


def test_symlinked_folder(tmp_path: Path):
    external_model(tmp_path / "real" / "model.onnx", "w.bin")
    write_data(tmp_path / "real" / "w.bin")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    np.testing.assert_array_equal(weight(tmp_path / "link" / "model.onnx"), WEIGHT)


def test_linked_model_file_finds_its_data(tmp_path: Path):
    real = external_model(tmp_path / "real" / "model.onnx", "w.bin")
    write_data(tmp_path / "real" / "w.bin")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "model.onnx").symlink_to(real)
    np.testing.assert_array_equal(weight(tmp_path / "here" / "model.onnx"), WEIGHT)


def hub_cache(root: Path) -> tuple[Path, Path]:
    """A snapshot of links into blobs/, as hub clients keep it."""
    repository = root / "models--org--name"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "abc" / "onnx"
    external_model(blobs / "0123", "model.onnx_data")
    write_data(blobs / "4567")
    snapshot.mkdir(parents=True)
    for name, blob in (("model.onnx", "0123"), ("model.onnx_data", "4567")):
        (snapshot / name).symlink_to(Path("../../../blobs") / blob)
    return snapshot / "model.onnx", blobs


def test_hub_cache(tmp_path: Path):
    path, _ = hub_cache(tmp_path)
    np.testing.assert_array_equal(weight(path), WEIGHT)


def test_hub_cache_of_another_repository(tmp_path: Path):
    path, _ = hub_cache(tmp_path / "one")
    _, other = hub_cache(tmp_path / "two")
    data = path.with_name("model.onnx_data")
    data.unlink()
    data.symlink_to(other / "4567")
    assert "outside the model's folder" in refusal(path).what


def test_link_to_elsewhere_is_refused_with_the_remedy(tmp_path: Path):
    path = external_model(tmp_path / "m" / "model.onnx", "w.bin")
    outside = write_data(tmp_path / "elsewhere" / "w.bin")
    link = tmp_path / "m" / "w.bin"
    link.symlink_to(outside)
    error = refusal(path)
    assert "outside the model's folder" in error.what
    assert f"--data-root {outside.parent}" in error.hint
    np.testing.assert_array_equal(weight(path, data_root=outside.parent), WEIGHT)
    os.system(error.hint.split("copy it: ")[1])
    np.testing.assert_array_equal(weight(path), WEIGHT)


def test_hard_link_is_refused_with_the_remedy(tmp_path: Path):
    path = external_model(tmp_path / "m" / "model.onnx", "w.bin")
    outside = write_data(tmp_path / "elsewhere" / "w.bin")
    (tmp_path / "m" / "w.bin").hardlink_to(outside)
    error = refusal(path)
    assert "hard link" in error.what
    os.system(error.hint.split("copy it: ")[1])
    np.testing.assert_array_equal(weight(path), WEIGHT)


def test_hard_link_in_a_vouched_folder(tmp_path: Path):
    path = external_model(tmp_path / "m" / "model.onnx", "w.bin")
    outside = write_data(tmp_path / "elsewhere" / "w.bin")
    (tmp_path / "m" / "w.bin").hardlink_to(outside)
    np.testing.assert_array_equal(weight(path, data_root=tmp_path / "m"), WEIGHT)


@pytest.mark.parametrize("location", ["../w.bin", "data/../../w.bin", "./../w.bin", "..\\w.bin"])
def test_parent_folders_are_refused(tmp_path: Path, location: str):
    path = external_model(tmp_path / "m" / "model.onnx", location)
    write_data(tmp_path / "w.bin")
    (tmp_path / "m" / "data").mkdir()
    error = refusal(path)
    assert "external path with '..'" in error.what
    assert "--data-root" in error.hint


def test_parent_folder_that_the_user_vouches_for(tmp_path: Path):
    path = external_model(tmp_path / "m" / "model.onnx", "../shared/w.bin")
    write_data(tmp_path / "shared" / "w.bin")
    assert f"--data-root {tmp_path / 'shared'}" in refusal(path).hint
    np.testing.assert_array_equal(weight(path, data_root=tmp_path / "shared"), WEIGHT)
    assert "outside" in refusal(path, data_root=tmp_path / "m" / "data").what


@pytest.mark.parametrize("location", ["/etc/hostname", "C:\\w.bin", "C:w.bin", "\\\\host\\w.bin"])
def test_absolute_paths_are_refused(tmp_path: Path, location: str):
    path = external_model(tmp_path / "model.onnx", location)
    assert "absolute external path" in refusal(path).what


def test_absolute_path_under_the_data_root(tmp_path: Path):
    data = write_data(tmp_path / "data" / "w.bin")
    path = external_model(tmp_path / "m" / "model.onnx", str(data))
    np.testing.assert_array_equal(weight(path, data_root=tmp_path / "data"), WEIGHT)


def test_data_root_is_searched_for_relative_paths(tmp_path: Path):
    path = external_model(tmp_path / "m" / "model.onnx", "w.bin")
    write_data(tmp_path / "data" / "w.bin")
    assert "does not exist" in refusal(path).what
    np.testing.assert_array_equal(weight(path, data_root=tmp_path / "data"), WEIGHT)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"offset": 8}, "needs bytes 8 to 56 of 'w.bin', which has 48"),
        ({"length": 40}, "declares 40 bytes where its dims need 48"),
        ({"offset": "x"}, "the offset 'x'"),
        ({"offset": -4}, "the offset '-4'"),
        ({"length": "1e3"}, "the length '1e3'"),
    ],
)
def test_bounds(tmp_path: Path, entries: dict[str, int | str], reason: str):
    path = external_model(tmp_path / "model.onnx", "w.bin", **entries)
    write_data(tmp_path / "w.bin")
    assert reason in refusal(path).what


@pytest.mark.parametrize("location", ["", "a\0b"])
def test_odd_locations(tmp_path: Path, location: str):
    assert "external location" in refusal(external_model(tmp_path / "m.onnx", location)).what


def test_empty_data_file(tmp_path: Path):
    path = external_model(tmp_path / "model.onnx", "w.bin")
    (tmp_path / "w.bin").touch()
    error = refusal(path)
    assert "which has 0" in error.what
    assert "truncated" in error.hint


def test_a_folder_or_a_pipe_is_no_data_file(tmp_path: Path):
    path = external_model(tmp_path / "model.onnx", "w.bin")
    (tmp_path / "w.bin").mkdir()
    assert "not a regular file" in refusal(path).what
    (tmp_path / "w.bin").rmdir()
    os.mkfifo(tmp_path / "w.bin")
    assert "not a regular file" in refusal(path).what


def test_unreadable_data(tmp_path: Path):
    path = external_model(tmp_path / "model.onnx", "w.bin")
    write_data(tmp_path / "w.bin").chmod(0)
    if os.access(tmp_path / "w.bin", os.R_OK):
        pytest.skip("this user may read everything")
    assert "cannot read 'w.bin'" in refusal(path).what
