"""manifest.json: what is in the folder, and what it was made from. Byte-stable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optcc.artifacts.storage import list_files
from optcc.errors import ConfigError

__all__ = [
    "FORMAT",
    "MANIFEST_NAME",
    "build_manifest",
    "describe_source",
    "file_sha256",
    "is_ours",
    "read_manifest",
    "verify_folder",
]

FORMAT = "optcc-manifest/1"
MANIFEST_NAME = "manifest.json"
_REPORT_PREFIX = "report."
_TEMPORARY_PREFIX = ".optcc-"


def build_manifest(
    folder: Path,
    *,
    input: Mapping[str, object],  # noqa: A002
    options: Mapping[str, object],
    versions: Mapping[str, str],
    seeds: Mapping[str, int],
) -> bytes:
    """Describe every file of `folder` but `report.*` and the manifest itself.

    The same files and arguments give the same bytes, wherever the folder lies.

    Args:
        folder: The finished files.
        input: Name, digest and size of the model that came in.
        options: Options that shaped the result; a `Path` is reduced to its base name.
        versions: Packages that shaped the result.
        seeds: Seeds by use.
    """
    content = {
        "format": FORMAT,
        "files": {n: _file_facts(folder / n) for n in _listed(folder)},
        "input": _plain(input),
        "options": _plain(options),
        "versions": _plain(versions),
        "seeds": _plain(seeds),
    }
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of `folder`, or None when there is none of ours."""
    try:
        content = json.loads((folder / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    return content if isinstance(content.get("files"), dict) else None


def is_ours(folder: Path) -> bool:
    """Whether `folder` holds a manifest that this program wrote."""
    return read_manifest(folder) is not None


def verify_folder(folder: Path) -> list[str]:
    """Compare the files with the manifest, and the manifest with the report.

    Returns:
        One short text per problem; empty when all is well.

    Raises:
        ConfigError: `folder` holds no manifest of ours.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ConfigError(f"{folder} holds no {MANIFEST_NAME} of optcc", where=str(folder))
    recorded, present = manifest["files"], _listed(folder)
    problems = [f"{n} is missing" for n in sorted(set(recorded) - set(present))]
    problems += [f"{n} is not in the manifest" for n in sorted(set(present) - set(recorded))]
    for name in (n for n in present if n in recorded):
        problems += _file_problems(folder / name, name, recorded[name])
    return problems + _report_problems(folder)


def _file_problems(path: Path, name: str, recorded: object) -> list[str]:
    if not path.is_file():  # a pipe or a link to nowhere must not be opened
        return [f"{name} is not a file"]
    try:
        same = recorded == _file_facts(path)
    except OSError as error:
        return [f"{name} cannot be read: {error.strerror}"]
    return [] if same else [f"{name} differs from its recorded sha256"]


def describe_source(path: Path) -> dict[str, str]:
    """Return base name and digest of a data file or folder, for the manifest's options."""
    if not path.is_dir():
        return {"name": path.name, "sha256": file_sha256(path)}
    digest = hashlib.sha256()
    for name in list_files(path):
        digest.update(f"{name.as_posix()} {file_sha256(path / name)}\n".encode())
    return {"name": path.name, "sha256": digest.hexdigest()}


def file_sha256(path: Path) -> str:
    """Return the digest of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(folder: Path) -> list[str]:
    names = [p.as_posix() for p in list_files(folder)]
    own = (_REPORT_PREFIX, _TEMPORARY_PREFIX)
    return [n for n in names if n != MANIFEST_NAME and not n.startswith(own)]


def _file_facts(path: Path) -> dict[str, object]:
    return {"sha256": file_sha256(path), "bytes": path.stat().st_size}


def _report_problems(folder: Path) -> list[str]:
    report = folder / "report.json"
    if not report.exists():
        return ["report.json is missing"]
    try:
        said = json.loads(report.read_bytes()).get("manifest_sha256")
    except (OSError, ValueError, AttributeError):
        return ["report.json cannot be read"]
    if said != file_sha256(folder / MANIFEST_NAME):
        return ["report.json belongs to another manifest"]
    return []


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return str(value)
    return value
