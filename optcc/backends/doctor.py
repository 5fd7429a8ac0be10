"""Facts about this machine for `optcc doctor`: what is there, what is not, and how to get it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from optcc.backends.contract import Availability
from optcc.backends.device import find_cuda_device
from optcc.backends.registry import backend_names, load_backend
from optcc.backends.trt_backend import TrtBackend
from optcc.errors import ConfigError
from optcc.targets.catalog import load_targets

__all__ = ["DoctorRow", "diagnose"]

_PACKAGES = ("onnx", "onnx-ir", "numpy", "ml-dtypes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRow:
    """One fact.

    Attributes:
        ok: None when it is neither good nor bad, just so.
        version: Empty where there is none.
        detail: One short sentence.
        hint: What to do; empty when nothing needs doing.
    """

    name: str
    ok: bool | None
    version: str = ""
    detail: str = ""
    hint: str = ""


def diagnose() -> list[DoctorRow]:
    """Look at Python, the packages, each backend (loaded for real) and the GPU."""
    rows = [_python_row(), *map(_package_row, _PACKAGES)]
    rows.extend(_backend_rows())
    rows.append(_device_row())
    return rows


def _python_row() -> DoctorRow:
    system = f"{platform.system()} {platform.machine()}"
    return DoctorRow(name="python", ok=True, version=platform.python_version(), detail=system)


def _package_row(name: str) -> DoctorRow:
    try:
        return DoctorRow(name=name, ok=True, version=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return DoctorRow(
            name=name,
            ok=False,
            detail=f"{name} is not installed",
            hint=f"{sys.executable} -m pip install {name}",
        )


def _backend_rows() -> Iterator[DoctorRow]:
    for name in backend_names():
        try:
            backend = load_backend(name)
        except ConfigError as error:
            yield DoctorRow(name=name, ok=False, detail=error.what, hint=error.hint or "")
            continue
        found = backend.probe() if isinstance(backend, TrtBackend) else backend.availability()
        yield _backend_row(name, found)


def _backend_row(name: str, found: Availability) -> DoctorRow:
    detail = "backend, usable" if found.ok else f"backend: {found.reason}"
    return DoctorRow(
        name=name,
        # The enterprise module has no business on a machine without a GPU.
        ok=True if found.ok else (None if name == "tensorrt" else False),
        version=found.version,
        detail=detail,
        hint=found.hint,
    )


def _device_row() -> DoctorRow:
    device = find_cuda_device()
    if device is None:
        return DoctorRow(
            name="cuda device",
            ok=None,
            detail="none: engines are built but not run, latency is measured on the CPU",
        )
    target = load_targets().get(device.target)
    runs = ", ".join(target.backends) if target is not None else "no backend"
    return DoctorRow(
        name="cuda device",
        ok=True,
        detail=f"{device.name} ({device.target}): engines of {runs} run on it and are timed there",
    )
