"""The output folder is whole, or absent, or as it was; whatever happens in between."""

import errno
import os
import stat
from pathlib import Path

import pytest

from optcc.artifacts import folder_lock, output_folder, swap, target
from optcc.artifacts.manifest import build_manifest
from optcc.artifacts.names import beside, inside
from optcc.artifacts.output_folder import OutputFolder
from optcc.errors import BackendError, ConfigError, WriteError


def fill(folder: OutputFolder, content: str = "new") -> None:
    folder.write("model.onnx", content.encode())
    folder.write("openvino/model.xml", content.encode())
    folder.write("report.json", b'{"schema_version": "1.0"}')
    folder.write("trace.jsonl", b"")
    folder.write(
        "manifest.json",
        build_manifest(folder.stage, input={}, options={}, versions={}, seeds={}),
    )


def make(out: Path, content: str = "new", **options: object) -> None:
    with OutputFolder(out, **options) as folder:
        fill(folder, content)
        folder.commit()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def break_off(out: Path, error: BaseException) -> None:
    with OutputFolder(out) as folder:
        fill(folder)
        raise error


ALL = ["manifest.json", "model.onnx", "openvino", "report.json", "trace.jsonl"]


def test_makes_an_absent_folder_and_nothing_else(tmp_path):
    make(tmp_path / "a" / "b" / "out")
    assert names(tmp_path / "a" / "b") == ["out"]
    assert names(tmp_path / "a" / "b" / "out") == ALL


def test_replaces_its_own_folder_and_keeps_its_mode(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    (out / "left.over").write_text("x")
    out.chmod(0o750)
    make(out, "new")
    assert (out / "model.onnx").read_text() == "new"
    assert names(out) == ALL
    assert stat.S_IMODE(out.stat().st_mode) == 0o750
    assert names(tmp_path) == ["out"]


def test_new_folder_has_the_mode_of_any_new_folder(tmp_path):
    make(tmp_path / "out")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_takes_an_empty_folder(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    make(out)
    assert names(out) == ALL


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_refuses_a_foreign_folder(tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"name": "web app"}')
    with pytest.raises(ConfigError, match="was not written by optcc") as caught:
        make(out)
    assert "--force" in caught.value.hint
    assert names(out) == [name]
    assert names(tmp_path) == ["out"]


def test_force_replaces_a_foreign_folder_and_a_file(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    file.write_text("mine")
    make(folder, force=True)
    make(file, force=True)
    assert names(folder) == names(file) == ALL
    assert names(tmp_path) == ["file", "folder"]


def test_refuses_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConfigError, match="was not written by optcc"):
        make(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_refuses_a_folder_that_holds_an_input_even_with_force(tmp_path):
    out = tmp_path / "out"
    make(out)
    with pytest.raises(ConfigError, match=r"the input model\.onnx lies in it"):
        make(out, inputs=[out / "model.onnx"], force=True)
    assert names(out) == ALL


def test_refuses_a_folder_above_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "out" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "out" / "work")
    with pytest.raises(ConfigError, match="the working folder lies in it"):
        make(tmp_path / "out", force=True)


def test_refuses_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="a folder of its own"):
        make(tmp_path, force=True)


def test_the_working_folder_stays_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    with OutputFolder(Path()) as folder:
        fill(folder)
        folder.commit()
    assert "it is the working folder" in folder.notes[0]
    assert tmp_path.stat().st_ino == before
    assert names(tmp_path) == ALL


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    make(link)
    assert link.is_symlink()
    assert names(real) == ALL


def test_an_error_leaves_the_earlier_folder_and_no_trace(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    with pytest.raises(ZeroDivisionError):
        break_off(out, ZeroDivisionError())
    assert (out / "model.onnx").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_an_error_removes_the_parents_that_were_made(tmp_path):
    with pytest.raises(ZeroDivisionError):
        break_off(tmp_path / "a" / "b" / "out", ZeroDivisionError())
    assert names(tmp_path) == []


def test_leaving_without_commit_writes_nothing(tmp_path):
    with OutputFolder(tmp_path / "out") as folder:
        fill(folder)
    assert names(tmp_path) == []


def test_commit_wants_a_manifest(tmp_path):
    with OutputFolder(tmp_path / "out") as folder:
        folder.write("model.onnx", b"")
        with pytest.raises(RuntimeError, match=r"no manifest\.json"):
            folder.commit()


def test_a_second_run_at_once_is_refused(tmp_path):
    out = tmp_path / "out"
    with OutputFolder(out) as first:
        fill(first, "first")
        with pytest.raises(WriteError, match="another run is writing") as caught:
            make(out, "second")
        assert caught.value.exit_code == 6
        first.commit()
    assert (out / "model.onnx").read_text() == "first"
    assert names(tmp_path) == ["out"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder of the kernel")
def test_a_place_that_takes_no_lock_is_not_another_run(tmp_path):
    lock = folder_lock.locked(Path("/proc/lock"), tmp_path / "out")
    with pytest.raises(WriteError, match="cannot write in /proc"), lock:
        pass


def test_a_run_on_another_folder_is_not_in_the_way(tmp_path):
    with OutputFolder(tmp_path / "out") as first:
        make(tmp_path / "out.optcc")
        make(tmp_path / "out2")
        fill(first)
        first.commit()
    assert names(tmp_path) == ["out", "out.optcc", "out2"]


def test_fail_keeps_the_report_and_no_model(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    for round_ in range(2):
        with OutputFolder(out) as folder:
            fill(folder)
            folder.write("reproducer/before.onnx", b"x")
            folder.write(f"model.{round_}.engine", b"x")
            assert folder.fail() == tmp_path / "out.failed"
    assert names(tmp_path / "out.failed") == ["report.json", "reproducer", "trace.jsonl"]
    assert (out / "model.onnx").read_text() == "old"
    assert names(tmp_path) == ["out", "out.failed"]


def test_fail_without_an_earlier_folder_makes_none(tmp_path):
    with OutputFolder(tmp_path / "deep" / "out") as folder:
        fill(folder)
        folder.fail()
    assert names(tmp_path / "deep") == ["out.failed"]


def test_refuses_a_foreign_failure_folder_before_work(tmp_path):
    (tmp_path / "out.failed").mkdir()
    (tmp_path / "out.failed" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"out\.failed exists"):
        make(tmp_path / "out")
    assert names(tmp_path) == ["out.failed"]


def test_full_disk_in_the_block_is_a_write_error(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device", "model.onnx")
    with pytest.raises(WriteError, match="no space is left") as caught:
        break_off(tmp_path / "out", full)
    assert caught.value.exit_code == 6
    assert names(tmp_path) == []


def test_full_disk_behind_another_error_is_a_write_error(tmp_path):
    error = BackendError("cannot save")
    error.__cause__ = OSError(errno.EDQUOT, "quota")
    with pytest.raises(WriteError, match="quota"):
        break_off(tmp_path / "out", error)


def test_a_backend_that_fails_on_a_full_disk_is_a_write_error(tmp_path, monkeypatch):
    monkeypatch.setattr(output_folder, "disk_is_full", lambda _: True)
    with pytest.raises(WriteError, match="no space is left"):
        break_off(tmp_path / "out", BackendError("the builder says: internal error"))


def test_an_error_that_is_not_about_storage_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError):
        break_off(tmp_path / "out", FileNotFoundError(errno.ENOENT, "no such file", "calib.npz"))


def test_where_names_cannot_be_exchanged_it_moves_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(swap, "exchange", lambda one, other: False)
    make(tmp_path / "out", "old")
    make(tmp_path / "out", "new")
    assert (tmp_path / "out" / "model.onnx").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_an_error_between_the_two_moves_restores_the_earlier_folder(tmp_path, monkeypatch):
    out = tmp_path / "out"
    make(out, "old")
    monkeypatch.setattr(swap, "exchange", lambda one, other: False)
    rename = Path.rename

    def fails_for_the_stage(self, to):
        if "stage" in self.name:
            raise OSError(errno.EIO, "broken disk")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fails_for_the_stage)
    with pytest.raises(WriteError, match="cannot write"):
        make(out, "new")
    assert (out / "model.onnx").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_run_that_died_between_the_two_moves_is_undone(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    out.rename(beside(out).aside)
    dead = beside(out).new("stage")
    dead.mkdir()
    with OutputFolder(out):
        assert (out / "model.onnx").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_what_cannot_move_whole_is_replaced_file_by_file(tmp_path, monkeypatch):
    out = tmp_path / "out"
    make(out, "old")
    (out / "openvino" / "old.bin").write_text("x")

    def busy(one, other):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(swap, "exchange", busy)
    with OutputFolder(out) as folder:
        fill(folder)
        folder.commit()
    assert "not atomic" in folder.notes[0]
    assert (out / "model.onnx").read_text() == "new"
    assert names(out / "openvino") == ["model.xml"]
    assert names(out) == ALL
    assert names(tmp_path) == ["out"]


@pytest.fixture
def in_place(monkeypatch):
    monkeypatch.setattr(target.os.path, "ismount", lambda path: Path(path).name == "out")


def test_a_mount_point_is_filled_in_place(tmp_path, in_place):
    out = tmp_path / "out"
    (out / "lost+found").mkdir(parents=True)
    make(out, "old")
    with OutputFolder(out) as folder:
        fill(folder)
        assert not folder.atomic
        assert "it is a mount point" in folder.notes[0]
        folder.commit()
    assert (out / "model.onnx").read_text() == "new"
    assert names(out) == sorted([*ALL, "lost+found"])
    assert names(tmp_path) == ["out"]


def test_in_place_an_error_leaves_the_earlier_files(tmp_path, in_place):
    out = tmp_path / "out"
    out.mkdir()
    make(out, "old")
    with pytest.raises(ZeroDivisionError):
        break_off(out, ZeroDivisionError())
    assert (out / "model.onnx").read_text() == "old"
    assert names(out) == ALL


def test_in_place_the_manifest_comes_last(tmp_path, in_place, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    make(out, "old")
    order = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(Path(to).name), replace(self, to))[1]
    )
    make(out, "new")
    assert order[-1] == "manifest.json"
    assert len(order) == 5


def test_in_place_a_half_replaced_folder_can_be_replaced_again(tmp_path, in_place):
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_text("half")
    with pytest.raises(ConfigError):
        make(out)
    inside(out).replacing.touch()
    make(out)
    assert names(out) == ALL


def test_in_place_files_from_another_disk_are_copied(tmp_path, in_place, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    replace = Path.replace

    def crosses(self, to):
        if "stage" in str(self):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", crosses)
    make(out)
    assert names(out) == ALL
    assert (out / "model.onnx").read_text() == "new"


def test_in_place_fail_writes_beside_the_folder(tmp_path, in_place):
    out = tmp_path / "out"
    out.mkdir()
    make(out, "old")
    with OutputFolder(out) as folder:
        fill(folder)
        assert folder.fail() == tmp_path / "out.failed"
    assert names(tmp_path / "out.failed") == ["report.json", "trace.jsonl"]
    assert (out / "model.onnx").read_text() == "old"


def test_fail_says_so_where_it_cannot_keep_the_report(tmp_path, in_place, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    mkdir = Path.mkdir

    def denies(self, *args, **kwargs):
        if ".optcc-failed-" in self.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", denies)
    with OutputFolder(out) as folder:
        fill(folder)
        assert folder.fail() is None
    assert "was not kept" in folder.notes[-1]
    assert names(out) == []


def test_a_parent_that_is_a_file_is_a_write_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot write"):
        make(tmp_path / "file" / "out")


def test_a_very_long_name_works(tmp_path):
    make(tmp_path / ("x" * 240), "old")
    make(tmp_path / ("x" * 240), "new")
    assert names(tmp_path) == ["x" * 240]


def test_locked_folders_inside_an_earlier_run_are_removed(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    (out / "openvino").chmod(0o500)
    make(out, "new")
    assert names(tmp_path) == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="exchange is a POSIX system call")
def test_exchange_swaps_a_folder_and_a_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("b")
    if not swap.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system does not exchange names")
    assert (tmp_path / "a").read_text() == "b"
    assert (tmp_path / "b").is_dir()
    with pytest.raises(FileNotFoundError):
        swap.exchange(tmp_path / "a", tmp_path / "missing")
