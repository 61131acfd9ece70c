"""Shallow JSON: what was not asked for stays the bytes that it came as."""

import msgspec
import pytest

from proxy.responses.rawjson import UNREADABLE, members, text


def test_members_stay_the_bytes_that_they_came_as() -> None:
    fields = members(b' {"a": [1,  2.50, {"b":"\\u00e9"}] ,"c":null, "\\u0064" : "x"} ')

    assert {key: bytes(value) for key, value in fields.items()} == {
        "a": b'[1,  2.50, {"b":"\\u00e9"}]',
        "c": b"null",
        "d": b'"x"',
    }


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b'"a"', b"{", b'{"a":}', b'{"a":1}x', b'{"\xff":1}', b'{"a":' * 5000],
    ids=lambda data: repr(data)[:20],
)
def test_what_is_not_an_object_is_unreadable(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        members(data)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        *((b'"x"', "x"), (b'""', ""), (b'"\\u00e9"', "é"), (b"null", None), (b"5", None)),
        *((b'["x"]', None), (b'"\xff"', None), (b'"\\ud800"', None)),
    ],
)
def test_a_string_member_is_read_and_anything_else_is_none(value: bytes, found: str | None) -> None:
    assert text({"key": msgspec.Raw(value)}, "key") == found
    assert text({}, "key") is None
