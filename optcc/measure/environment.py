"""The machine and the packages that figures belong to. No paths, no names of people or hosts."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

__all__ = ["environment", "package_versions", "usable_cores"]

_PACKAGES = (
    "optcc-compiler",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "ml-dtypes",
    "tensorrt-rtx",
    "tensorrt",
)
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_TOLD_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimddp",
    "i8mm",
)


def package_versions() -> dict[str, str]:
    """Return the versions that shape results, of the packages that are installed."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def environment() -> dict[str, str]:
    """Return package versions, operating system, processor and memory."""
    cpu, flags = _processor()
    facts = {
        **package_versions(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu,
        "cpu_flags": " ".join(flags),
        "cores": str(usable_cores()),
        "memory_mib": _memory_mib(),
    }
    return {k: v for k, v in facts.items() if v}


def _processor() -> tuple[str, list[str]]:
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine(), []
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    present = set((facts.get("flags") or facts.get("Features", "")).split())
    name = facts.get("model name") or platform.processor() or platform.machine()
    return name, [f for f in _TOLD_FLAGS if f in present]


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_mib() -> str:
    with suppress(OSError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return str(int(line.split()[1]) // 1024)
    return ""
