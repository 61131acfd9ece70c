"""What one connection may do, how it ends, and that its place is free afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from harness.wire.client import CutError, WireClient, request
from harness.wire.upstream import ScriptedUpstream, on_go
from harness.wire.websocket import CLOSE, TEXT, Closed, frame, handshake, opened
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import chunked, named, post

SECONDS = 30
PLACES = 3
GET = request("GET", "/healthz")


@pytest.fixture
async def small(upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """A proxy with few places for connections: any that is not given back is soon missed."""
    async with open_proxy(upstream.url, server={"connections": PLACES}) as proxy:
        yield proxy


async def test_a_keep_alive_client_is_served_again_and_again_on_one_connection(
    proxy: Proxy,
) -> None:
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        for _ in range(500):
            await client.send(GET)
            assert (await client.answer("GET")).status == 200


async def test_a_websocket_that_was_hung_up_gives_its_place_back(small: Proxy) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(2 * PLACES):
            await (await small.websocket()).client.hang_up()
        for _ in range(2 * PLACES):
            socket = await small.websocket()
            await socket.raw(frame(CLOSE, b"\x03\xe8"))
            assert await socket.event() == Closed(1000)
            assert await socket.client.wait_closed() == b""
            await socket.client.hang_up()

        assert (await small.get("/healthz")).status == 200


async def test_a_frame_may_come_along_with_the_handshake(small: Proxy) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(2 * PLACES):
            client = await small.connect()
            await client.send(handshake() + frame(TEXT, b'{"type":"response.create"}'))
            socket = await opened(client)
            await socket.until("response.completed")
            await client.hang_up()

        await small.until_idle()


async def test_a_frame_after_a_denied_handshake_leaves_nothing_held(small: Proxy) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(2 * PLACES):
            client = await small.connect()
            strange = handshake({"origin": "http://elsewhere.example"})
            await client.send(strange + frame(TEXT, b'{"type":"response.create"}'))
            answer = await client.answer("GET")
            assert (answer.status, answer.code) == (403, "foreign_origin")
            await client.hang_up()

        await small.until_idle()


@pytest.mark.parametrize("target", ["/healthz", "/readyz", "/status", "/v1/models", "/nothing"])
async def test_an_unwanted_body_does_not_hold_its_connection(small: Proxy, target: str) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(PLACES + 1):
            client = await small.connect()
            body = chunked([b"x"] * 60)
            await client.send(request("GET", target, {"transfer-encoding": "chunked"}, body))
            await client.answer("GET")
            await client.hang_up()

        assert (await small.get("/healthz")).status == 200


async def test_a_connection_beyond_the_limit_waits_for_a_place(small: Proxy) -> None:
    with trio.fail_after(SECONDS):
        first = [await small.connect() for _ in range(PLACES)]
        for client in first:
            await client.send(GET)
            await client.answer("GET")
        late = [await small.connect() for _ in range(3)]
        for client in late:
            await client.send(GET)
        await first[0].send(GET)
        await first[0].answer("GET")
        for waits, leaves in zip(late, first, strict=False):
            await leaves.hang_up()
            assert (await waits.answer("GET")).status == 200


async def test_a_second_request_during_the_first_ends_the_connection_after_the_answer(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = on_go
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post() + GET)
        sent = await upstream.wait_sent(1)
        await client.send(GET)
        sent.go.set()
        answer = await client.answer()

        assert b"response.completed" in answer.body
        assert await client.wait_closed() == b""
        await proxy.until_idle()


async def test_a_client_that_never_stops_asking_still_gets_its_whole_answer(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = on_go
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post())
        sent = await upstream.wait_sent(1)
        await client.head()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_flood, client)
            sent.go.set()
            body = b""
            while chunk := await client.more():
                body += chunk
            nursery.cancel_scope.cancel()

        assert b"response.completed" in body
        await proxy.until_idle()


async def _flood(client: WireClient) -> None:
    try:
        while True:
            await client.send(GET * 100)
    except trio.BrokenResourceError:
        return


async def test_an_idle_connection_is_let_go_after_a_while(upstream: ScriptedUpstream) -> None:
    settings = {"keep_alive_seconds": 0.05}
    async with open_proxy(upstream.url, server=settings) as proxy:
        with trio.fail_after(SECONDS):
            silent, slow, asked, served = [await proxy.connect() for _ in range(4)]
            await slow.send(GET[:20])
            await asked.send(GET)
            await asked.answer("GET")
            await served.send(post(named("t")))
            await served.answer()
            for client in (silent, slow, asked, served):
                with pytest.raises(CutError):
                    await client.answer("GET")
