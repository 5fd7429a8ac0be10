"""Backends by name."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from optcc.backends import registry
from optcc.backends.registry import backend_names, default_backends, load_backend
from optcc.errors import ConfigError

GROUP = "optcc.backends"


def offer(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    entries = [EntryPoint(name, value, GROUP) for name, value in (v.split("=") for v in values)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)


def test_ours_are_there() -> None:
    assert set(backend_names()) >= {"onnxruntime", "tensorrt", "tensorrt_rtx"}
    for name in ("onnxruntime", "tensorrt", "tensorrt_rtx"):
        assert load_backend(name).name == name
    assert default_backends()[0] == "onnxruntime"


def test_a_wrong_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="backend 'tensorrt_rtz' is not known") as caught:
        load_backend("tensorrt_rtz")
    assert caught.value.hint == "did you mean tensorrt_rtx?"


def test_a_name_offered_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "one=a.b:C", "one=d.e:F")
    with pytest.raises(ConfigError, match="backend 'one' is offered twice"):
        backend_names()


def test_the_same_entry_seen_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "one=a.b:C", "one=a.b:C")
    assert backend_names() == ("one",)


def test_a_backend_that_cannot_be_imported_stays_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "lost=no_such_module_here:X")
    assert backend_names() == ("lost",)
    with pytest.raises(ConfigError, match="backend 'lost' cannot be imported"):
        load_backend("lost")


def test_something_else_is_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "odd=fractions:Fraction")
    with pytest.raises(ConfigError, match="is not a backend"):
        load_backend("odd")


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from optcc.backends.registry import default_backends, load_backend\n"
        "default_backends(); load_backend('tensorrt').availability()\n"
        "heavy = {'numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'tensorrt', 'tensorrt_rtx', 'torch'}\n"
        "found = sorted(heavy & set(sys.modules))\n"
        "raise SystemExit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
