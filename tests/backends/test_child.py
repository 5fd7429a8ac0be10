"""The child process: events, ends, and the same small world every time."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from optcc.backends.child import Event, run_child

MODULE = "tests.backends.talking_child"


class Stop(Exception):
    """Raised by a test in the middle of a talk."""


def test_events_arrive_in_order(tmp_path: Path) -> None:
    heard: list[Event] = []
    end = run_child(MODULE, {"events": 500}, heard.append, cwd=tmp_path)
    assert [e["number"] for e in heard if e["event"] == "count"] == list(range(500))
    assert (end.status, end.printed) == (0, "")


def test_status_and_the_end_of_what_it_printed(tmp_path: Path) -> None:
    end = run_child(
        MODULE, {"status": 3, "says": "x" * 5000 + "the end"}, lambda e: None, cwd=tmp_path
    )
    assert end.status == 3
    assert end.printed.endswith("the end")
    assert len(end.printed) <= 2000


@pytest.mark.skipif(sys.platform == "win32", reason="signals end no process there")
def test_a_crash_shows_as_its_signal(tmp_path: Path) -> None:
    end = run_child(MODULE, {"signal": int(signal.SIGKILL)}, lambda e: None, cwd=tmp_path)
    assert end.status == -signal.SIGKILL


def test_an_exception_in_the_parent_ends_the_child(tmp_path: Path) -> None:
    def hear(event: Event) -> None:
        raise Stop

    begin = time.monotonic()
    with pytest.raises(Stop):
        run_child(MODULE, {"sleep": 60}, hear, cwd=tmp_path)
    assert time.monotonic() - begin < 30


def test_the_parent_is_told_that_time_passes(tmp_path: Path) -> None:
    ticks: list[int] = []
    run_child(MODULE, {"sleep": 0.8}, lambda e: None, cwd=tmp_path, on_tick=lambda: ticks.append(1))
    assert ticks


def test_the_world_of_the_child_does_not_depend_on_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    heard: list[Event] = []
    run_child(MODULE, {}, heard.append, cwd=tmp_path)
    assert heard == [{"event": "world", "seed": "0"}]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_our_own_addresses_stay_random(tmp_path: Path) -> None:
    before = Path("/proc/self/personality").read_text("ascii")
    run_child(MODULE, {}, lambda e: None, cwd=tmp_path)
    assert Path("/proc/self/personality").read_text("ascii") == before


def test_a_module_in_the_working_folder_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    assert run_child(MODULE, {}, lambda e: None, cwd=tmp_path).status == 0
    assert os.listdir(tmp_path) == ["json.py"]
