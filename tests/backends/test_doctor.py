"""Facts about this machine."""

from __future__ import annotations

import importlib.metadata

import pytest

from optcc.backends import doctor
from optcc.backends.device import CudaDevice
from optcc.backends.doctor import diagnose
from optcc.errors import ConfigError


def rows() -> dict[str, doctor.DoctorRow]:
    return {row.name: row for row in diagnose()}


def test_every_row_says_something() -> None:
    found = rows()
    assert {"python", "onnx", "onnxruntime", "tensorrt", "tensorrt_rtx", "cuda device"} <= set(
        found
    )
    assert found["onnx"].version == importlib.metadata.version("onnx")
    assert all(row.version or row.detail for row in found.values())
    assert all(row.hint for row in found.values() if row.ok is False)


def test_the_enterprise_module_is_no_fault_of_a_machine_without_a_gpu() -> None:
    row = rows()["tensorrt"]
    assert row.ok is not False
    assert row.ok or row.hint


def test_a_missing_package_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PACKAGES", ("no-such-package",))
    row = rows()["no-such-package"]
    assert row.ok is False
    assert row.hint.endswith("pip install no-such-package")


def test_a_broken_backend_is_a_row_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ConfigError(f"backend {name!r} cannot be imported: gone", hint="reinstall it")

    monkeypatch.setattr(doctor, "backend_names", lambda: ("lost",))
    monkeypatch.setattr(doctor, "load_backend", fail)
    row = rows()["lost"]
    assert (row.ok, row.hint) == (False, "reinstall it")


@pytest.mark.parametrize(
    ("target", "runs"),
    [("sm89", "tensorrt_rtx, tensorrt"), ("sm90", "tensorrt"), ("sm61", "no backend")],
)
def test_a_device_is_named_with_the_engines_it_runs(
    target: str, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_cuda_device", lambda: CudaDevice("Some GPU", target))
    detail = doctor._device_row().detail
    assert detail == f"Some GPU ({target}): engines of {runs} run on it and are timed there"


def test_no_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_cuda_device", lambda: None)
    row = doctor._device_row()
    assert (row.ok, row.detail.partition(":")[0]) == (None, "none")
