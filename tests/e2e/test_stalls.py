"""Clients that stop reading, or stop sending: they are given up, and hold nothing meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
import trio

from harness.wire.client import WireClient, request
from harness.wire.upstream import ScriptedUpstream, on_go
from harness.wire.websocket import TEXT, WebSocket, frame
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create, endless, named, post

pytestmark = pytest.mark.load  # large bodies, real drains and stalls: seconds each

SECONDS = 20
PATIENCE: Final = 0.3
SETTINGS: Final = {
    "stall_seconds": PATIENCE,
    "body_silent_seconds": PATIENCE,
    "body_seconds": 2 * PATIENCE,
    "discard_seconds": PATIENCE,
}
PLACES = 2


@pytest.fixture
async def hasty(upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """A proxy with little patience and few places, and one other client in mid-stream."""
    settings = {"connections": PLACES + 1}
    async with open_proxy(upstream.url, client=SETTINGS, server=settings) as proxy:
        yield proxy


@pytest.fixture
async def bystander(hasty: Proxy, upstream: ScriptedUpstream) -> AsyncIterator[WireClient]:
    """A client in mid-stream beside it all, whose turn has to finish unharmed."""
    upstream.script, script = on_go, upstream.script
    client = await hasty.connect()
    await client.send(post(named("bystander")))
    sent = await upstream.wait_sent(1)
    await client.head()
    upstream.script = script
    yield client
    sent.go.set()
    with trio.fail_after(SECONDS):
        body = b""
        while chunk := await client.more():
            body += chunk
    assert b"response.completed" in body


async def test_a_client_that_stops_reading_loses_its_lane_and_its_connection(
    hasty: Proxy, upstream: ScriptedUpstream, bystander: WireClient
) -> None:
    upstream.script = endless
    with trio.fail_after(SECONDS):
        for number in range(2, PLACES + 3):
            client = await hasty.connect(receive_bytes=4096)
            await client.send(post(named("t")))
            sent = await upstream.wait_sent(number)
            await sent.cut.wait()
            await hasty.until(lambda status: status["lanes"]["active"] == 1, SECONDS)
            await client.wait_closed()
            await client.hang_up()


async def test_a_websocket_that_stops_reading_loses_its_lane_and_its_place(
    hasty: Proxy, upstream: ScriptedUpstream, bystander: WireClient
) -> None:
    upstream.script = endless
    with trio.fail_after(SECONDS):
        for number in range(2, PLACES + 3):
            client = await hasty.connect(receive_bytes=4096)
            socket = await hasty.websocket_on(client)
            await socket.send(create("t"))
            sent = await upstream.wait_sent(number)
            await sent.cut.wait()
            status = await hasty.until(lambda status: status["websockets"]["active"] == 0, SECONDS)
            assert status["lanes"]["active"] == 1
            await client.wait_closed()
            await client.hang_up()


async def test_a_flood_of_frames_that_reads_no_answer_is_ended(
    hasty: Proxy, bystander: WireClient
) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(PLACES + 1):
            client = await hasty.connect(receive_bytes=4096)
            socket = await hasty.websocket_on(client)
            with pytest.raises(trio.BrokenResourceError):
                await _flood(socket)
            await client.hang_up()
        status = await hasty.until(lambda status: status["websockets"]["active"] == 0, SECONDS)

    assert status["lanes"]["active"] == 1


@pytest.mark.parametrize("sent", [b"", b'{"stream":'])
async def test_a_body_that_does_not_come_is_waited_for_no_longer_than_allowed(
    hasty: Proxy, bystander: WireClient, sent: bytes
) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(PLACES + 1):
            client = await hasty.connect()
            await client.send(post({**named("t"), "content-length": "1000"}, sent))
            answer = await client.answer()
            assert (answer.status, answer.code) == (408, "body_timeout")
            assert answer.headers["connection"] == "close"
            await client.hang_up()
        await hasty.until(lambda status: status["lanes"]["active"] == 1)


async def test_a_body_that_comes_byte_by_byte_is_given_up_after_its_whole_time(
    hasty: Proxy, bystander: WireClient
) -> None:
    with trio.fail_after(SECONDS):
        client = await hasty.connect()
        await client.send(post({**named("t"), "content-length": "100000"}, b"{"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_trickle, client)
            answer = await client.answer()
            nursery.cancel_scope.cancel()
        await client.hang_up()

    assert (answer.status, answer.code) == (408, "body_timeout")


async def test_headers_that_do_not_end_are_given_up_with_the_idle_connections(
    upstream: ScriptedUpstream,
) -> None:
    settings = {"keep_alive_seconds": PATIENCE, "connections": PLACES}
    async with open_proxy(upstream.url, server=settings) as proxy:
        with trio.fail_after(SECONDS):
            clients = [await proxy.connect() for _ in range(2 * PLACES)]
            for client in clients:
                await client.send(request("GET", "/healthz")[:-2])
            for client in clients:
                assert await client.wait_closed() == b""

            assert (await proxy.get("/healthz")).status == 200


async def _flood(socket: WebSocket) -> None:
    while True:
        await socket.raw(frame(TEXT, b"no JSON") * 500)


async def _trickle(client: WireClient) -> None:
    while True:
        await client.send(b" ")
        await trio.sleep(PATIENCE / 10)
