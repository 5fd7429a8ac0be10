import msgspec
import pytest

from optcc.errors import ConfigError
from optcc.report.codec import decode, encode
from optcc.report.schema import SCHEMA_VERSION
from tests.report.sample import bare_report, good_report, random_report, unlabelled_report


@pytest.mark.parametrize("make", [good_report, random_report, unlabelled_report, bare_report])
def test_comes_back_as_it_went(make) -> None:
    assert decode(encode(make())) == make()


def test_bytes_do_not_depend_on_the_order_of_mappings() -> None:
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert encode(good_report(environment=one)) == encode(good_report(environment=other))


def test_is_readable_text_with_the_version_first() -> None:
    lines = encode(good_report()).decode().splitlines()
    assert lines[:2] == ["{", f'  "schema_version": "{SCHEMA_VERSION}",']


def test_refuses_another_version() -> None:
    old = encode(good_report(schema_version="99.0"))
    with pytest.raises(ConfigError, match=r"schema version 99\.0"):
        decode(old)


def test_refuses_an_unknown_field() -> None:
    data = msgspec.json.decode(encode(good_report())) | {"surprise": 1}
    with pytest.raises(ConfigError, match="surprise"):
        decode(msgspec.json.encode(data))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"verdict": "pass"}', b"\xff\xfe"])
def test_refuses_what_is_no_report(data: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(data)
    assert caught.value.where == "report.json"
