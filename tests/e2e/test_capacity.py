"""How many at once: lanes, turns and WebSockets, and what the next one is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from harness.wire.client import WireClient
from harness.wire.upstream import ScriptedUpstream, on_go
from harness.wire.websocket import WebSocket, upgrade
from tests.e2e.proxy import Proxy
from tests.testkit.wire import create, named, post

pytestmark = pytest.mark.load  # large bodies, real drains and stalls: seconds each

SECONDS = 20
LANE_BYTES = 32


@pytest.fixture
async def held(upstream: ScriptedUpstream) -> AsyncIterator[ScriptedUpstream]:
    """An upstream that keeps every turn open until it is released."""
    upstream.script = on_go
    yield upstream
    upstream.release()


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_lanes_are_counted_to_the_byte_and_the_65th_is_refused(
    proxy: Proxy, held: ScriptedUpstream, transport: str
) -> None:
    asked: list[WireClient | WebSocket] = []

    async def ask(number: int) -> WireClient | WebSocket:
        thread = f"thread-{number}"
        if transport == "http":
            asked.append(await _post(proxy, thread))
        else:
            asked.append(socket := await proxy.websocket())
            await socket.send(create(thread))
        return asked[-1]

    with trio.fail_after(SECONDS):
        for number in range(64):
            await ask(number)
            if number in (31, 63):
                await held.wait_sent(number + 1)
                assert await _lane_bytes(proxy) == (number + 1) * LANE_BYTES
        match await ask(64):
            case WebSocket() as socket:
                frame = await socket.event()
                headers = {"retry-after": "2", "x-turnlane-refusal": "lanes_at_capacity"}
                assert (frame["type"], frame["status"], frame["headers"]) == ("error", 503, headers)
                error = frame["error"]
            case client:
                answer = await client.answer()
                assert answer.status == 503
                assert answer.headers["x-turnlane-refusal"] == "lanes_at_capacity"
                assert answer.headers["retry-after"] == "2"
                error = answer.json["error"]
        assert (error["code"], error["retryable"]) == ("server_busy", True)
        assert "all 64 lanes" in error["message"]
        assert (await _lane_bytes(proxy), len(held.sent)) == (2048, 64)

        held.release()
        for each in asked[:64]:
            if isinstance(each, WebSocket):
                await each.until("response.completed")
                await each.client.hang_up()
            else:
                assert b"response.completed" in (await each.answer()).body
        if isinstance(asked[-1], WebSocket):
            await asked[-1].client.hang_up()
        status = await proxy.until_idle()
    assert status["lanes"]["peak_retained_bytes"] == 2048
    assert status["refusals"] == {"lanes_at_capacity": 1}


async def test_websockets_beyond_the_limit_are_refused_before_they_open(proxy: Proxy) -> None:
    limit = 256
    with trio.fail_after(SECONDS):
        sockets = [await proxy.websocket() for _ in range(limit)]
        client = await proxy.connect()
        head = await upgrade(client)
        assert head.status == 503
        assert head.headers["x-turnlane-refusal"] == "websockets_at_capacity"
        assert int(head.headers["retry-after"]) >= 1

        await sockets[0].client.hang_up()
        await proxy.until(lambda status: status["websockets"]["active"] == limit - 1)
        sockets[0] = await proxy.websocket()


async def test_a_client_that_comes_back_at_once_gets_its_lane(
    proxy: Proxy, held: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        for number in range(1, 31):
            client = await _post(proxy, "thread")
            sent = await held.wait_sent(number)
            await client.head()
            await client.hang_up()
        client = await _post(proxy, "thread")
        sent = await held.wait_sent(31)
        sent.go.set()

        assert b"response.completed" in (await client.answer()).body
        assert (await proxy.until_idle())["refusals"] == {}


async def _post(proxy: Proxy, thread: str) -> WireClient:
    client = await proxy.connect()
    await client.send(post(named(thread)))
    return client


async def _lane_bytes(proxy: Proxy) -> int:
    count: int = (await proxy.status())["lanes"]["retained_bytes"]
    return count
