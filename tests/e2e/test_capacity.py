"""How many at once: lanes, turns and WebSockets, and what the next one is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from harness.wire.client import WireAnswer, WireClient
from harness.wire.upstream import ScriptedUpstream, at_once, on_go
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


async def test_lanes_over_http_are_counted_to_the_byte_and_the_next_one_is_refused(
    proxy: Proxy, held: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        clients = [await _post(proxy, f"thread-{number}") for number in range(32)]
        await held.wait_sent(32)
        assert await _lane_bytes(proxy) == 32 * LANE_BYTES == 1024
        clients += [await _post(proxy, f"thread-{number}") for number in range(32, 64)]
        await held.wait_sent(64)
        assert await _lane_bytes(proxy) == 64 * LANE_BYTES == 2048

        refused = await (await _post(proxy, "thread-64")).answer()
        _assert_busy(refused, "lanes_at_capacity")
        assert "all 64 lanes" in refused.json["error"]["message"]
        assert await _lane_bytes(proxy) == 2048
        assert len(held.sent) == 64

        held.release()
        for client in clients:
            assert b"response.completed" in (await client.answer()).body
        status = await proxy.until_idle()
    assert status["lanes"]["peak_retained_bytes"] == 2048
    assert status["refusals"] == {"lanes_at_capacity": 1}


async def test_lanes_over_websockets_are_counted_to_the_byte_and_the_next_one_is_refused(
    proxy: Proxy, held: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        sockets: list[WebSocket] = []
        for number in range(65):
            sockets.append(await proxy.websocket())
            if number < 64:
                await sockets[-1].send(create(f"thread-{number}"))
            if number in (31, 63):
                await held.wait_sent(number + 1)
                assert await _lane_bytes(proxy) == (number + 1) * LANE_BYTES
        await sockets[-1].send(create("thread-64"))
        refused = await sockets[-1].event()
        assert (refused["type"], refused["status"]) == ("error", 503)
        assert refused["error"]["code"] == "server_busy"
        assert refused["headers"] == {
            "retry-after": "2",
            "x-turnlane-refusal": "lanes_at_capacity",
        }
        assert await _lane_bytes(proxy) == 2048
        assert len(held.sent) == 64

        held.release()
        for socket in sockets[:64]:
            await socket.until("response.completed")
        await proxy.until(lambda status: status["lanes"]["active"] == 0)
        held.script = at_once
        await sockets[-1].send(create("thread-64"))
        await sockets[-1].until("response.completed")
        for socket in sockets:
            await socket.client.hang_up()
        await proxy.until_idle()


"""The limits that are counted up to one by one, as they are without a configuration."""


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


def _assert_busy(answer: WireAnswer, reason: str) -> None:
    assert (answer.status, answer.code) == (503, "server_busy")
    assert answer.headers["x-turnlane-refusal"] == reason
    assert answer.headers["retry-after"] == "2"
    assert answer.json["error"]["retryable"] is True
