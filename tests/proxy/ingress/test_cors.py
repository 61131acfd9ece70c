"""CORS: what a configured origin may read, refusals and errors included; and nobody else."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from lifecycle import Limits
from proxy.config.settings import ServerSettings
from proxy.keys import KeyRing
from tests.testkit.asgi import Client, HttpClient
from tests.testkit.runtime import Bench, Pairs
from tests.testkit.upstream import Script, answer, failing, rejecting

ORIGIN = "https://app.example"
SERVER = ServerSettings(origins=(ORIGIN,))
FROM_THERE: Pairs = (("origin", ORIGIN),)
FROM_ELSEWHERE: Pairs = (("origin", "https://evil.example"),)
ASKED: Pairs = (
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", "authorization, content-type, x-turnlane-key"),
)


@pytest.fixture
def bench(nursery: trio.Nursery, autojump_clock: MockClock) -> Bench:
    return Bench(nursery, server=SERVER)


def readable(client: Client) -> bool:
    """Whether a page of that origin may read this answer, and the headers that explain a no."""
    exposed = client.headers.get("access-control-expose-headers", "")
    return (
        client.headers.get("access-control-allow-origin") == ORIGIN
        and {"x-turnlane-refusal", "retry-after"} <= set(exposed.split(", "))
        and client.headers["vary"] == "origin"
    )


async def done(client: HttpClient) -> HttpClient:
    await client.wait_until(lambda: client.complete)
    return client


@pytest.mark.parametrize(
    ("script", "status"),
    [(answer(), 200), (rejecting(429, b"{}"), 429), (failing(), 502)],
    ids=["a stream", "the upstream's no", "no upstream"],
)
async def test_what_a_turn_comes_to_can_be_read(script: Script, status: int, bench: Bench) -> None:
    bench.upstream.will(script, script)
    client = await done(bench.post(headers=FROM_THERE))

    assert client.status == status
    assert readable(client)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/status", "/nothing"])
async def test_every_other_answer_can_be_read_too(path: str, bench: Bench) -> None:
    assert readable(await done(bench.get(path, headers=FROM_THERE)))


async def test_a_refusal_can_be_read_with_its_reason_and_its_advice(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, server=SERVER, limits=Limits(lanes=1, lanes_kept=0))
    bench.upstream.will(Script((trio.Event(),)))
    bench.post(thread="a")
    await trio.testing.wait_all_tasks_blocked()
    client = await done(bench.post(thread="b", headers=FROM_THERE))

    assert client.refused.reason == "lanes_at_capacity"
    assert client.refused.retry_after == "2"
    assert readable(client)


async def test_a_fault_of_ours_can_be_read(bench: Bench) -> None:
    client = await done(bench.post(headers=FROM_THERE))  # there is no script for it

    assert client.status == 500
    assert readable(client)


async def test_a_denied_websocket_can_be_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, server=SERVER, limits=Limits(websockets=0))
    socket = bench.socket(headers=FROM_THERE)
    await socket.wait_until(lambda: socket.complete)

    assert socket.refused.reason == "websockets_at_capacity"
    assert readable(socket)


async def test_a_request_without_an_origin_hears_nothing_of_all_this(bench: Bench) -> None:
    client = await done(bench.get("/healthz"))

    assert not any(name.startswith("access-control-") for name in client.headers)


# Preflights.


def preflight(bench: Bench, *headers: tuple[str, str], path: str = "/v1/responses") -> HttpClient:
    return bench.request("OPTIONS", path, headers=[*headers])


async def test_a_preflight_is_answered_without_a_key(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    ring = KeyRing(tmp_path)
    ring.add("one")
    bench = Bench(nursery, server=SERVER, keys=ring)
    client = await done(preflight(bench, *FROM_THERE, *ASKED))

    assert (client.status, client.body) == (204, b"")
    assert readable(client)
    assert client.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert (
        client.headers["access-control-allow-headers"]
        == dict(ASKED)["access-control-request-headers"]
    )
    assert client.headers["access-control-max-age"] == "600"
    assert "access-control-allow-private-network" not in client.headers
    assert (bench.records, bench.upstream.sent) == ([], [])


async def test_a_page_on_the_internet_asks_whether_it_may_reach_this_machine(bench: Bench) -> None:
    asked = ("access-control-request-private-network", "true")
    client = await done(preflight(bench, *FROM_THERE, *ASKED, asked))

    assert client.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ((*FROM_ELSEWHERE, *ASKED), 403, "foreign_origin"),
        (ASKED, 405, "method_not_allowed"),
        (FROM_THERE, 405, "method_not_allowed"),
    ],
    ids=["of a foreign origin", "of no origin", "for no method"],
)
async def test_any_other_options_is_no_preflight(
    headers: Pairs, status: int, reason: str, bench: Bench
) -> None:
    client = preflight(bench, *headers)
    client.send_body_nowait(b"")
    await done(client)

    assert (client.refused.status, client.refused.reason) == (status, reason)


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_foreign_origin_reads_nothing_and_spends_nothing(kind: str, bench: Bench) -> None:
    client: Any = (
        bench.post(headers=[*FROM_ELSEWHERE, ("content-type", "text/plain")])
        if kind == "http"
        else bench.socket(headers=FROM_ELSEWHERE)
    )
    await client.wait_until(lambda: client.complete)

    assert client.refused.reason == "foreign_origin"
    assert not any(name.startswith("access-control-") for name in client.headers)
    assert bench.upstream.sent == []
