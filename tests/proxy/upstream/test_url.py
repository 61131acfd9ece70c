"""Where a send goes: origins, host headers, and request targets that stay as they came."""

import pytest

from proxy.upstream.url import CHATGPT_URL, OPENAI_URL, Origin, base_of, upstream_url


@pytest.mark.parametrize(
    ("own", "configured", "chatgpt", "url"),
    [
        (None, None, False, OPENAI_URL),
        (None, None, True, CHATGPT_URL),
        (None, "http://all", True, "http://all"),
        ("http://one", "http://all", False, "http://one"),
        ("http://one", None, True, "http://one"),
    ],
)
def test_a_request_goes_to_the_accounts_url_then_the_configured_one_then_its_provider(
    own: str | None, configured: str | None, chatgpt: bool, url: str
) -> None:
    assert upstream_url(own, configured, chatgpt=chatgpt) == url


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
def test_a_url_that_no_request_can_be_sent_to_is_none(url: str) -> None:
    assert base_of(url) is None


@pytest.mark.parametrize("query", [b"", b"a=1&b", b"a=%7e&b=~&c='\"<>[]{}|\\^`", b"?#"])
def test_a_query_goes_up_byte_for_byte(query: bytes) -> None:
    base = base_of("http://here/v1")

    assert base is not None
    whole = b"/v1/responses" + (b"?" + query if query else b"")
    assert base.target("/responses", query) == whole


def test_the_target_of_a_url_without_a_path_is_a_slash() -> None:
    base = base_of("http://here/")

    assert base is not None
    assert (base.target("", b""), base.target("", b"a")) == (b"/", b"/?a")


@pytest.mark.parametrize("query", [b"a b", b"a\r\nx: y", b"\x80", b"\0"])
def test_a_query_that_would_break_the_line_has_no_target(query: bytes) -> None:
    base = base_of("http://here/v1")

    assert base is not None
    assert base.target("/responses", query) is None
