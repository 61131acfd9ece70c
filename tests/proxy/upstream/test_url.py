"""Where a send goes: origins, host headers, and request targets that stay as they came."""

import pytest

from proxy.upstream.url import Origin, base_of


@pytest.mark.parametrize(
    ("url", "origin", "host", "path"),
    [
        (
            "https://api.openai.com/v1",
            Origin(True, "api.openai.com", 443),
            b"api.openai.com",
            b"/v1",
        ),
        ("http://here:80/", Origin(False, "here", 80), b"here", b""),
        ("http://here:443", Origin(False, "here", 443), b"here:443", b""),
        ("http://[::1]:8080/a/b//", Origin(False, "::1", 8080), b"[::1]:8080", b"/a/b"),
        ("HTTPS://Here/%41 b", Origin(True, "here", 443), b"here", b"/%41%20b"),
        ("http://b\u00fccher/v1", Origin(False, "xn--bcher-kva", 80), b"xn--bcher-kva", b"/v1"),
    ],
)
def test_a_base_url_is_an_origin_and_a_path(
    url: str, origin: Origin, host: bytes, path: bytes
) -> None:
    base = base_of(url)

    assert base is not None
    assert (base.origin, base.host, base.path) == (origin, host, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "here",
        "ftp://here",
        "http://",
        "http://here:99999",
        "http://a:b@here",
        "http://a b/",
        "http://[::1",
        "http://" + "\u00fc" * 80,
    ],
)
def test_what_no_request_can_be_sent_to_is_none(url: str) -> None:
    assert base_of(url) is None


@pytest.mark.parametrize("query", [b"", b"a=1&b", b"a=%7e&b=~&c='\"<>[]{}|\\^`", b"?#"])
def test_a_query_goes_up_byte_for_byte(query: bytes) -> None:
    base = base_of("http://here/v1")

    assert base is not None
    whole = b"/v1/responses" + (b"?" + query if query else b"")
    assert base.target("/responses", query) == whole


@pytest.mark.parametrize("query", [b"a b", b"a\r\nx: y", b"\x80", b"\0"])
def test_a_query_that_would_break_the_line_has_no_target(query: bytes) -> None:
    base = base_of("http://here/v1")

    assert base is not None
    assert base.target("/responses", query) is None
