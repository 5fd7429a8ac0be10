"""report.json to and from `Report`: the same report gives the same bytes."""

from __future__ import annotations

import msgspec

from optcc.errors import ConfigError
from optcc.report.schema import SCHEMA_VERSION, Report

__all__ = ["decode", "encode"]


def encode(report: Report) -> bytes:
    """Return `report` as indented JSON; keys in the order of the schema, mappings sorted."""
    text: bytes = msgspec.json.encode(report, order="deterministic")
    return bytes(msgspec.json.format(text, indent=2)) + b"\n"


def decode(data: bytes) -> Report:
    """Read what `encode` wrote.

    Raises:
        ConfigError: Not JSON, another schema version, or a field that the schema does not know.
    """
    try:
        version = msgspec.json.decode(data, type=_Version).schema_version
    except msgspec.DecodeError as error:
        raise ConfigError(f"the report is not readable: {error}", where="report.json") from error
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise ConfigError(
            f"the report has schema version {version}, this optcc reads {SCHEMA_VERSION}",
            hint="compile the model again, or use the optcc that wrote it",
            where="report.json",
        )
    try:
        return msgspec.json.decode(data, type=Report)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the report does not fit the schema: {error}", where="report.json"
        ) from error


class _Version(msgspec.Struct, frozen=True):
    """The one field that is read before the schema is trusted."""

    schema_version: str
