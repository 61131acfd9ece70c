"""Host and Origin: a page that a browser runs must not spend a token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import ServerSettings
from proxy.ingress.origin import foreign

SERVER = ServerSettings(
    hosts=("Desk.example",), origins=("https://app.example", "http://localhost:3000")
)
HERE = "127.0.0.1:10110"


def problem(
    host: str | None, origin: str | None = None, server: ServerSettings = SERVER
) -> str | None:
    headers = [(b"accept", b"*/*")]
    if host is not None:
        headers.append((b"host", host.encode("latin-1")))
    if origin is not None:
        headers.append((b"origin", origin.encode("latin-1")))
    return foreign(headers, server)


@pytest.mark.parametrize(
    "host",
    [
        HERE,
        "127.0.0.1",
        "127.8.9.10:80",
        "localhost:10110",
        "LocalHost",
        "[::1]:10110",
        "[::1]",
        "[::1",  # an address all the same
        "desk.example:10110",
        "DESK.EXAMPLE",
    ],
)
def test_this_machine_and_the_configured_hosts_are_known(host: str) -> None:
    assert problem(host) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:10110",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#127.0.0.1",
        "localhost@evil.example",
        "0.0.0.0:10110",
        "192.168.1.7:10110",
        "[fe80::1]:10110",
        "::1",
        "[",
        "]",
        "[]",
        "other.desk.example",
        "127.0.0.\xb2",
        "\xff",
    ],
)
def test_any_other_host_may_be_a_page_that_was_rebound_to_us(host: str | None) -> None:
    said = problem(host)

    assert said is not None
    assert "Host" in said


def test_the_address_it_listens_on_is_its_own_name() -> None:
    server = ServerSettings(host="10.1.2.3")

    assert problem("10.1.2.3:10110", server=server) is None
    assert problem("10.1.2.4:10110", server=server) is not None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (HERE, None),
        (HERE, "https://app.example"),
        (HERE, "http://localhost:3000"),
        (HERE, f"http://{HERE}"),
        (HERE, f"https://{HERE}"),
        ("localhost:10110", "http://localhost:10110"),
        ("[::1]:10110", "http://[::1]:10110"),
    ],
)
def test_no_page_and_our_own_and_the_configured_ones_may_speak(
    host: str, origin: str | None
) -> None:
    assert problem(host, origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "http://127.0.0.1:3000",
        "http://localhost:10110",
        "http://127.0.0.1",
        f"ftp://{HERE}",
        f"http://{HERE}/",
        f"http://{HERE}@evil.example",
        f"//{HERE}",
        HERE,
        "http://[",
        "http://[x]y",
        "http://\xff",
    ],
)
def test_any_other_origin_is_a_page_of_somebody_else(origin: str) -> None:
    said = problem(HERE, origin)

    assert said is not None
    assert "Origin" in said


def test_a_rebound_page_is_not_excused_by_naming_itself() -> None:
    assert problem("evil.example", "http://evil.example") is not None


def test_an_allowed_origin_does_not_excuse_a_strange_host() -> None:
    assert problem("evil.example", "https://app.example") is not None


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_nothing_strange_passes_and_nothing_strange_breaks(
    host: bytes, origin: bytes | None
) -> None:
    headers = [(b"host", host)] + ([] if origin is None else [(b"origin", origin)])
    said = foreign(headers, ServerSettings())

    assert said is not None or host.strip().lower().startswith((b"localhost", b"127.", b"[::1"))
    assert said is None or len(said) < 1000


def test_what_is_quoted_is_bounded() -> None:
    for said in (problem("x" * 9999), problem(HERE, "x" * 9999)):
        assert said is not None
        assert len(said) < 300
