"""Clients that stop reading, or stop sending: they are given up, and hold nothing meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
import trio

from harness.wire.client import request
from harness.wire.upstream import ScriptedUpstream
from harness.wire.websocket import TEXT, WebSocket, frame
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import bystander, create, endless, named, post

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
async def beside(hasty: Proxy, upstream: ScriptedUpstream) -> AsyncIterator[None]:
    """A client in mid-stream beside it all, whose turn has to finish unharmed."""
    async with bystander(await hasty.connect(), upstream):
        yield


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_client_that_stops_reading_loses_its_lane_and_its_connection(
    transport: str, hasty: Proxy, upstream: ScriptedUpstream, beside: None
) -> None:
    upstream.script = endless
    with trio.fail_after(SECONDS):
        for number in range(2, PLACES + 3):
            client = await hasty.connect(receive_bytes=4096)
            if transport == "http":
                await client.send(post(named("t")))
            else:
                await (await hasty.websocket_on(client)).send(create("t"))
            sent = await upstream.wait_sent(number)
            await sent.cut.wait()
            await hasty.until(lambda status: status["lanes"]["active"] == 1, SECONDS)
            await client.wait_closed()
            await client.hang_up()
        await hasty.until(lambda status: status["websockets"]["active"] == 0, SECONDS)


async def test_a_body_that_does_not_come_is_given_up(hasty: Proxy, beside: None) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(PLACES + 1):
            answer = await hasty.ask(post({**named("t"), "content-length": "1000"}, b'{"stream":'))
            assert (answer.status, answer.code) == (408, "body_timeout")
            assert answer.headers["connection"] == "close"
        await hasty.until(lambda status: status["lanes"]["active"] == 1)


async def test_a_flood_of_frames_that_reads_no_answer_is_ended(hasty: Proxy, beside: None) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(PLACES + 1):
            client = await hasty.connect(receive_bytes=4096)
            socket = await hasty.websocket_on(client)
            with pytest.raises(trio.BrokenResourceError):
                await _flood(socket)
            await client.hang_up()
        status = await hasty.until(lambda status: status["websockets"]["active"] == 0, SECONDS)

    assert status["lanes"]["active"] == 1


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
