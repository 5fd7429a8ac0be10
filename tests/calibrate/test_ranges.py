"""ranges.json: round trip, stable bytes, refusals."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.calibrate.ranges import load_ranges, ranges_to_bytes
from optcc.errors import ConfigError
from optcc.passkit.qtypes import ActivationRange, RangeTable

bound = st.floats(0, 1e30, allow_nan=False)
interval = st.builds(
    lambda low, high, method: ActivationRange(low=-low, high=high, method=method),
    bound,
    bound,
    st.sampled_from(["minmax", "mse"]),
)


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


@settings(max_examples=20, deadline=None)
@given(rows=st.dictionaries(st.text(max_size=6), st.tuples(interval, interval), max_size=5))
def test_round_trip_in_any_order(one_folder, rows):
    figures = {n: r[0].high for n, r in rows.items()}
    table = RangeTable(
        {n: r[0] for n, r in rows.items()}, {n: r[1] for n, r in rows.items()}, figures
    )
    turned = dict(reversed(rows.items()))
    again = RangeTable(
        {n: r[0] for n, r in turned.items()}, {n: r[1] for n, r in turned.items()}, figures
    )
    path = one_folder / "ranges.json"
    path.write_bytes(ranges_to_bytes(table))
    assert path.read_bytes() == ranges_to_bytes(again)
    assert load_ranges(path, rows) == table


def saved(folder, **values):
    rows = {n: ActivationRange(low=-1.0, high=2.0, method="mse") for n in values or ("a", "b")}
    path = folder / "ranges.json"
    path.write_bytes(ranges_to_bytes(RangeTable(rows, rows)))
    return path


def test_a_file_of_another_model_is_refused_with_names(tmp_path):
    with pytest.raises(ConfigError, match="another model") as caught:
        load_ranges(saved(tmp_path), ["b", "c", "d", "e", "f"])
    assert "no range for 'c', 'd', 'e' and 1 more" in caught.value.what
    assert "holds ranges of 'a', which this model does not quantize" in caught.value.what


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema_version": "9"}, "has schema version '9'"),
        ({"signed": None}, "has no table 'signed'"),
        ({"signed": {"a": {"low": 1.0, "high": 2.0, "method": "mse"}}}, r"signed\.a is"),
        ({"signed": {"a": {"low": "0", "high": 2.0, "method": "mse"}}}, r"signed\.a is"),
        ({"unsigned": {"a": {"low": 0.0, "high": float("inf"), "method": "x"}}}, "unsigned.a"),
        ({"unsigned": {"a": {"low": 0.0, "high": 1.0}}}, r"unsigned\.a is"),
        ({"unit_sqnr_db": {"a": None}}, "no table 'unit_sqnr_db'"),
    ],
)
def test_malformed_content_is_refused(tmp_path, change, text):
    path = saved(tmp_path, a=1)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(ConfigError, match=text):
        load_ranges(path, ["a"])


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]"])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "ranges.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ranges\.json"):
        load_ranges(path, ["a"])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_ranges(tmp_path / "ranges.json", [])
