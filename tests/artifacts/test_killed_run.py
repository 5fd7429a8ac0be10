"""Real processes: killed, interrupted, out of space, on a mount, without rights, two at once."""

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optcc.artifacts.leftovers import remove_leftovers
from optcc.artifacts.manifest import is_ours, read_manifest

from .killed_run import FILES

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and mounts are tested on POSIX")

SCRIPT = Path(__file__).with_name("killed_run.py")


def start(out: Path, content: str, mode: str, **options) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), str(out), content, mode]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, **options)
    if mode in ("wait", "loop"):
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def finish(process: subprocess.Popen) -> tuple[int, str]:
    try:
        _, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()  # or its warnings fail other tests
        process.communicate()
        raise
    return process.returncode, errors


def commit(out: Path, content: str, **options) -> tuple[int, str]:
    return finish(start(out, content, "commit", **options))


def content_of(out: Path) -> str:
    """Return what all files hold; fails when they differ."""
    texts = {(out / n).read_text() for n in FILES}
    assert len(texts) == 1
    text = texts.pop()
    assert read_manifest(out)["options"]["n"] == text[0]
    return text[0]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_kill_leaves_the_earlier_folder_and_the_next_run_cleans_up(tmp_path):
    out = tmp_path / "out"
    assert commit(out, "1") == (0, "")
    process = start(out, "2", "wait")
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    assert content_of(out) == "1"
    assert len(names(tmp_path)) > 1
    assert commit(out, "3") == (0, "")
    assert content_of(out) == "3"
    assert names(tmp_path) == ["out"]


def test_leftovers_are_removed_on_request_but_not_those_of_a_live_run(tmp_path):
    out = tmp_path / "out"
    assert commit(out, "1") == (0, "")
    process = start(out, "2", "wait")
    assert remove_leftovers(out) == []
    process.kill()
    finish(process)
    removed = remove_leftovers(out)
    assert len(removed) == 1
    assert "stage" in removed[0]
    assert names(tmp_path) == ["out"]
    assert remove_leftovers(tmp_path / "absent") == []


def test_kill_at_any_moment_leaves_one_whole_folder(tmp_path):
    out, moment = tmp_path / "out", random.Random(7)
    for _ in range(5):
        process = start(out, "", "loop")
        time.sleep(moment.uniform(0, 0.05))
        process.kill()
        finish(process)
        content_of(out)
    assert commit(out, "x") == (0, "")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)]
)
def test_a_signal_leaves_no_trace(tmp_path, number, code):
    out = tmp_path / "new" / "out"
    process = start(out, "1", "wait")
    process.send_signal(number)
    returned, errors = finish(process)
    assert returned == code
    assert errors == ""
    assert names(tmp_path) == []


def test_two_signals_leave_no_trace(tmp_path):
    process = start(tmp_path / "out", "1", "wait")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] in (130, 143)
    assert names(tmp_path) == []


def test_signals_while_committing_leave_one_whole_folder(tmp_path):
    out, moment = tmp_path / "out", random.Random(3)
    for _ in range(5):
        process = start(out, "", "loop")
        time.sleep(moment.uniform(0, 0.05))
        process.send_signal(signal.SIGTERM)
        assert finish(process) == (143, "")
        content_of(out)
        assert names(tmp_path) == ["out"]


def test_two_runs_at_once(tmp_path):
    out = tmp_path / "out"
    first = start(out, "1", "wait")
    code, errors = commit(out, "2")
    assert code == 6
    assert errors == f"error: another run is writing {out}\n"
    first.terminate()
    finish(first)
    assert names(tmp_path) == []


def test_many_runs_at_once_leave_one_whole_folder(tmp_path):
    out = tmp_path / "out"
    processes = [start(out, str(n), "commit") for n in range(6)]
    codes = [finish(p)[0] for p in processes]
    assert 0 in codes
    assert set(codes) <= {0, 6}
    content_of(out)
    assert names(tmp_path) == ["out"]


def test_a_limit_on_file_size_is_a_write_error(tmp_path):
    out = tmp_path / "out"
    assert commit(out, "1") == (0, "")
    limit = 100

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    code, errors = commit(out, "2", preexec_fn=lower)
    assert code == 6
    assert "largest size allowed" in errors
    assert content_of(out) == "1"
    assert names(tmp_path) == ["out"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 256 KiB; needs the right to mount."""
    point = tmp_path / "disk"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(point)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("mounting a file system is not allowed here")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_full_disk_is_a_write_error(small_disk):
    out = small_disk / "out"
    assert commit(out, "1") == (0, "")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    code, errors = commit(out, "2")
    assert code == 6
    assert "no space is left on the disk" in errors
    assert content_of(out) == "1"
    assert names(small_disk) == ["filler", "out"]
    filler.unlink()
    assert commit(out, "3") == (0, "")
    assert names(small_disk) == ["out"]


def test_a_real_mount_point_is_filled_in_place(small_disk):
    assert commit(small_disk, "1") == (0, "")
    assert commit(small_disk, "2") == (0, "")
    assert content_of(small_disk) == "2"
    assert names(small_disk) == ["a.bin", "b.bin", "deep", "manifest.json"]
    assert names(small_disk.parent) == ["disk"]


def test_kill_on_a_mount_point_never_blocks_the_next_run(small_disk):
    moment = random.Random(5)
    for _ in range(5):
        process = start(small_disk, "", "loop")
        time.sleep(moment.uniform(0, 0.05))
        process.kill()
        finish(process)
    assert commit(small_disk, "x") == (0, "")
    assert content_of(small_disk) == "x"
    assert names(small_disk) == ["a.bin", "b.bin", "deep", "manifest.json"]


def test_a_bind_mount_of_the_same_disk_is_filled_in_place(tmp_path):
    out, behind = tmp_path / "out", tmp_path / "behind"
    out.mkdir()
    behind.mkdir()
    try:
        mounted = subprocess.run(["mount", "--bind", behind, out], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    try:
        assert commit(out, "1") == (0, "")
        assert content_of(behind) == "1"
    finally:
        subprocess.run(["umount", out], check=True)


@pytest.fixture
def without_rights(tmp_path):
    """Options that start a process for which permissions count, also when the tests run as root."""
    folder = tmp_path / "parent"
    folder.mkdir()
    yield folder, ({"preexec_fn": drop_override} if os.geteuid() == 0 else {})
    folder.chmod(0o755)


def drop_override() -> None:
    read_capability, drop_capability, dac_override = 23, 24, 1
    libc = ctypes.CDLL(None)
    if libc.prctl(read_capability, dac_override) == 1:
        libc.prctl(drop_capability, dac_override)


linux = pytest.mark.skipif(sys.platform != "linux", reason="capabilities are dropped on Linux")


@linux
def test_an_unwritable_parent_is_a_write_error(without_rights):
    folder, options = without_rights
    folder.chmod(0o555)
    code, errors = commit(folder / "out", "1", **options)
    assert code == 6
    assert "Permission denied" in errors
    assert names(folder) == []


@linux
def test_an_unwritable_parent_with_a_writable_folder_is_filled_in_place(without_rights):
    folder, options = without_rights
    out = folder / "out"
    out.mkdir()
    folder.chmod(0o555)
    assert commit(out, "1", **options) == (0, "")
    assert commit(out, "2", **options) == (0, "")
    assert content_of(out) == "2"
    assert is_ours(out)
    assert names(folder) == ["out"]


@linux
def test_an_unwritable_folder_is_a_write_error(without_rights):
    folder, options = without_rights
    out = folder / "out"
    out.mkdir(mode=0o555)
    folder.chmod(0o555)
    code, errors = commit(out, "1", **options)
    assert code == 6
    assert "Permission denied" in errors
    assert names(out) == []


@linux
def test_a_parent_that_takes_names_without_showing_them(without_rights):
    folder, options = without_rights
    folder.chmod(0o333)
    assert commit(folder / "out", "1", **options) == (0, "")
    assert commit(folder / "out", "2", **options) == (0, "")
    folder.chmod(0o755)
    assert content_of(folder / "out") == "2"
    assert names(folder) == ["out"]
