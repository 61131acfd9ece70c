"""Host and Origin: which pages may speak to a local port. CORS: what a configured one may read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Limits
from proxy.config.settings import ServerSettings
from proxy.ingress.origin import foreign
from proxy.journal.record import Transport
from proxy.keys import KeyRing
from tests.testkit.asgi import Client
from tests.testkit.runtime import Bench, OpenBench, Pairs
from tests.testkit.upstream import Script, answer, failing, rejecting

ORIGIN = "https://app.example"
SERVER = ServerSettings(hosts=("Desk.example",), origins=(ORIGIN, "http://localhost:3000"))
HERE = "127.0.0.1:10110"
FROM_THERE: Pairs = (("origin", ORIGIN),)
FROM_ELSEWHERE: Pairs = (("origin", "https://evil.example"),)
WANTED = "authorization, content-type, x-turnlane-key"
PREFLIGHT: Pairs = (
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", WANTED),
)


def problem(
    host: str | None, origin: str | None = None, server: ServerSettings = SERVER
) -> str | None:
    named = [(b"host", host), (b"origin", origin)]
    return foreign(
        [(key, text.encode("latin-1")) for key, text in named if text is not None], server
    )


@pytest.mark.parametrize(
    "host",
    [
        *(HERE, "127.0.0.1", "127.8.9.10:80", "localhost:10110", "LocalHost"),
        *("[::1]:10110", "[::1]", "[::1", "desk.example:10110", "DESK.EXAMPLE"),
    ],
)
def test_loopback_and_configured_hosts_are_accepted(host: str) -> None:
    assert problem(host) is None


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", "evil.example", "evil.example:10110", "127.0.0.1.evil.example"),
        *("localhost.evil.example", "evil.example#127.0.0.1", "localhost@evil.example"),
        *("0.0.0.0:10110", "192.168.1.7:10110", "[fe80::1]:10110", "::1", "[", "]", "[]"),
        *("other.desk.example", "127.0.0.\xb2", "\xff"),
    ],
)
def test_any_other_host_may_be_a_page_whose_name_was_rebound(host: str | None) -> None:
    assert "Host" in (problem(host) or "")


def test_the_address_that_it_listens_on_is_accepted() -> None:
    server = ServerSettings(host="10.1.2.3")

    assert problem("10.1.2.3:10110", server=server) is None
    assert problem("10.1.2.4:10110", server=server) is not None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        *((HERE, None), (HERE, ORIGIN), (HERE, "http://localhost:3000")),
        *((HERE, f"http://{HERE}"), (HERE, f"https://{HERE}")),
        *(("localhost:1", "http://localhost:1"), ("[::1]:10110", "http://[::1]:10110")),
    ],
)
def test_no_origin_its_own_and_configured_ones_are_accepted(host: str, origin: str | None) -> None:
    assert problem(host, origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        *("", "null", "https://evil.example", "http://app.example", "https://app.example:8443"),
        *("https://app.example.evil.example", "http://127.0.0.1:3000", "http://localhost:10110"),
        *("http://127.0.0.1", f"ftp://{HERE}", f"http://{HERE}/", f"http://{HERE}@evil.example"),
        *(f"//{HERE}", HERE, "http://[", "http://[x]y", "http://\xff"),
    ],
)
def test_any_other_origin_is_refused(origin: str) -> None:
    assert "Origin" in (problem(HERE, origin) or "")


@pytest.mark.parametrize("origin", ["http://evil.example", ORIGIN])
def test_an_origin_does_not_excuse_a_foreign_host(origin: str) -> None:
    assert problem("evil.example", origin) is not None


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_any_bytes_are_judged(host: bytes, origin: bytes | None) -> None:
    headers = [(b"host", host)] + ([] if origin is None else [(b"origin", origin)])
    said = foreign(headers, ServerSettings())

    assert said is not None or host.strip().lower().startswith((b"localhost", b"127.", b"[::1"))


def test_what_a_refusal_quotes_is_bounded() -> None:
    for said in (problem("x" * 9999), problem(HERE, "x" * 9999)):
        assert said is not None
        assert len(said) < 300


# CORS.


@pytest.fixture
def bench(open_bench: OpenBench) -> Bench:
    return open_bench(server=SERVER)


def readable(client: Client) -> bool:
    """Whether a page of the origin may read an answer and the headers that explain a refusal."""
    exposed = client.headers.get("access-control-expose-headers", "").split(", ")
    return (
        client.headers.get("access-control-allow-origin") == ORIGIN
        and {"x-turnlane-refusal", "retry-after"} <= set(exposed)
        and client.headers["vary"] == "origin"
    )


@pytest.mark.parametrize(
    ("script", "status"),
    [(answer(), 200), (rejecting(429, b"{}"), 429), (failing(), 502), (None, 500)],
    ids=["a stream", "rejected upstream", "no upstream", "a bug: no script is left"],
)
async def test_a_configured_page_can_read_how_a_turn_ended(
    script: Script | None, status: int, bench: Bench
) -> None:
    bench.upstream.will(*([] if script is None else [script, script]))
    client = await bench.post(headers=FROM_THERE).wait_answered()

    assert client.status == status
    assert readable(client)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/status", "/nothing"])
async def test_it_can_read_every_other_answer(path: str, bench: Bench) -> None:
    assert readable(await bench.get(path, headers=FROM_THERE).wait_answered())


async def test_it_can_read_why_a_turn_was_refused(bench: Bench) -> None:
    bench.runtime.admission.close_door(10)
    client = await bench.post(headers=FROM_THERE).wait_answered()

    assert (client.refused.reason, client.refused.retry_after) == ("draining", "12")
    assert readable(client)


async def test_it_can_read_why_a_websocket_was_denied(open_bench: OpenBench) -> None:
    bench = open_bench(server=SERVER, limits=Limits(websockets=0))
    socket = await bench.socket(headers=FROM_THERE).wait_answered()

    assert socket.refused.reason == "websockets_at_capacity"
    assert readable(socket)


async def test_a_request_without_an_origin_gets_no_cors_headers(bench: Bench) -> None:
    client = await bench.get("/healthz").wait_answered()

    assert not any(name.startswith("access-control-") for name in client.headers)


async def test_a_preflight_is_answered_without_a_key(open_bench: OpenBench, ring: KeyRing) -> None:
    ring.add("one")
    bench = open_bench(server=SERVER, keys=ring)
    client = bench.request("OPTIONS", "/v1/responses", headers=[*FROM_THERE, *PREFLIGHT])
    await client.wait_answered()

    assert (client.status, client.body) == (204, b"")
    assert readable(client)
    assert client.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert client.headers["access-control-allow-headers"] == WANTED
    assert client.headers["access-control-max-age"] == "600"
    assert "access-control-allow-private-network" not in client.headers
    assert (bench.records, bench.upstream.sent) == ([], [])


async def test_a_page_on_the_internet_may_reach_this_machine(bench: Bench) -> None:
    private = ("access-control-request-private-network", "true")
    client = bench.request("OPTIONS", "/v1/responses", headers=[*FROM_THERE, *PREFLIGHT, private])
    await client.wait_answered()

    assert client.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ((*FROM_ELSEWHERE, *PREFLIGHT), 403, "foreign_origin"),
        (PREFLIGHT, 405, "method_not_allowed"),
        (FROM_THERE, 405, "method_not_allowed"),
    ],
    ids=["from a foreign origin", "without an origin", "for no method"],
)
async def test_other_options_requests_are_not_preflights(
    headers: Pairs, status: int, reason: str, bench: Bench
) -> None:
    client = bench.request("OPTIONS", "/v1/responses", headers=headers)
    client.send_body_nowait(b"")
    await client.wait_answered()

    assert (client.refused.status, client.refused.reason) == (status, reason)


async def test_a_foreign_page_reads_nothing_and_spends_nothing(
    transport: Transport, bench: Bench
) -> None:
    client = await bench.turn(transport, headers=[*FROM_ELSEWHERE, ("content-type", "text/plain")])
    await client.wait_answered()

    assert (client.refused.status, client.refused.reason) == (403, "foreign_origin")
    assert bench.records[0].transport is transport
    assert not any(name.startswith("access-control-") for name in client.headers)
    assert bench.upstream.sent == []
