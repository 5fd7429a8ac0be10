"""ranges.json: the chosen ranges as a file that can be read, compared and used again.

{"schema_version": "1.0",
 "signed": {"value": {"high": 1.0, "low": 0.0, "method": "mse"}, ...},
 "unsigned": {...}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from optcc.errors import ConfigError
from optcc.passkit.qtypes import ActivationRange, RangeTable

__all__ = ["RANGES_SCHEMA_VERSION", "load_all_ranges", "load_ranges", "ranges_to_bytes"]

RANGES_SCHEMA_VERSION = "1.0"

_MOST_NAMED = 3


def ranges_to_bytes(table: RangeTable) -> bytes:
    """Return the content of ranges.json: the same bytes for the same ranges."""
    content = {
        "schema_version": RANGES_SCHEMA_VERSION,
        "signed": _rows(table.signed),
        "unsigned": _rows(table.unsigned),
        "unit_sqnr_db": dict(table.unit_sqnr_db),
    }
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _rows(ranges: Mapping[str, ActivationRange]) -> dict[str, dict[str, float | str]]:
    return {n: {"low": r.low, "high": r.high, "method": r.method} for n, r in ranges.items()}


def load_ranges(path: Path, names: Iterable[str]) -> RangeTable:
    """Read saved ranges for exactly the values `names`.

    Raises:
        ConfigError: The file is missing or malformed, or it belongs to another model.
    """
    content = _content(path)
    version = content.get("schema_version")
    if version != RANGES_SCHEMA_VERSION:
        raise ConfigError(
            f"{path.name} has schema version {version!r}, it must be {RANGES_SCHEMA_VERSION!r}",
            where=str(path),
            hint="make it again: compile without --ranges",
        )
    wanted = sorted(set(names))
    tables = {s: _table(content.get(s), s, path, wanted) for s in ("signed", "unsigned")}
    return RangeTable(
        signed=tables["signed"],
        unsigned=tables["unsigned"],
        unit_sqnr_db=_unit_figures(content.get("unit_sqnr_db"), path),
    )


def load_all_ranges(path: Path) -> RangeTable:
    """Read saved ranges of whatever values they are.

    Raises:
        ConfigError: The file is missing or malformed.
    """
    signed = _content(path).get("signed")
    return load_ranges(path, signed if isinstance(signed, dict) else ())


def _content(path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"--ranges {path} does not exist") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ConfigError(f"{path.name} cannot be read as ranges: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path.name} holds {type(content).__name__}, not a table of ranges")
    return content


def _table(rows: object, scheme: str, path: Path, wanted: list[str]) -> dict[str, ActivationRange]:
    if not isinstance(rows, dict):
        raise ConfigError(f"{path.name} has no table {scheme!r}", where=str(path))
    _refuse_other_model(set(rows), wanted, path)
    return {name: _range(rows[name], f"{path.name}: {scheme}.{name}") for name in wanted}


def _unit_figures(figures: object, path: Path) -> dict[str, float]:
    if not isinstance(figures, dict) or not all(_is_number(f) for f in figures.values()):
        raise ConfigError(f"{path.name} has no table 'unit_sqnr_db' of numbers", where=str(path))
    return {name: float(figures[name]) for name in sorted(figures)}


def _refuse_other_model(found: set[str], wanted: list[str], path: Path) -> None:
    missing = [n for n in wanted if n not in found]
    unknown = sorted(found.difference(wanted))
    problems = []
    if missing:
        problems.append(f"has no range for {_listed(missing)}")
    if unknown:
        problems.append(f"holds ranges of {_listed(unknown)}, which this model does not quantize")
    if problems:
        raise ConfigError(
            f"{path.name} belongs to another model: it {' and '.join(problems)}",
            where=str(path),
            hint="use the ranges.json of this model, or --calib PATH",
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _range(row: object, where: str) -> ActivationRange:
    if isinstance(row, dict) and set(row) == {"low", "high", "method"}:
        low, high, method = row["low"], row["high"], row["method"]
        if _is_number(low) and _is_number(high) and low <= 0 <= high and isinstance(method, str):
            return ActivationRange(low=float(low), high=float(high), method=method)
    raise ConfigError(
        f"{where} is {json.dumps(row)[:100]}, it must be low <= 0 <= high and a method"
    )


def _is_number(number: object) -> bool:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and math.isfinite(number)  # type: ignore[arg-type]
