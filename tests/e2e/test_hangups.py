"""Clients that leave: the upstream is cut and everything is given back, whatever was going on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio

from harness.wire.client import WireClient, request
from harness.wire.upstream import Received, ScriptedUpstream, on_go
from harness.wire.websocket import CLOSE, frame
from tests.e2e.proxy import Proxy
from tests.testkit.wire import create, named, post, silent

SECONDS = 10
GONE_SECONDS = 1.0
GET: Final = request("GET", "/healthz")
STREAMED: Final = b'{"stream":true}'
WHOLE: Final = b'{"stream":false}'

Leave = Callable[[WireClient], Awaitable[None]]


async def half_a_body(sent: Received) -> None:
    """Part of an answer that is not a stream."""
    await sent.begin(200, [("content-type", "application/json")])
    await sent.write(b'{"id":')
    await sent.go.wait()


STAGES: Final = {
    "waiting for headers": (silent, STREAMED, False),
    "in mid-stream": (on_go, STREAMED, True),
    "waiting for a whole answer": (silent, WHOLE, False),
    "in the middle of a whole answer": (half_a_body, WHOLE, True),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("behind", ["nothing", "at once", "later"])
@pytest.mark.parametrize("leave", [WireClient.hang_up, WireClient.reset])
async def test_a_client_that_leaves_cuts_its_turn_within_a_second(
    proxy: Proxy, upstream: ScriptedUpstream, stage: str, behind: str, leave: Leave
) -> None:
    upstream.script, body, begun = STAGES[stage]
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post(named("t"), body) + (GET if behind == "at once" else b""))
        sent = await upstream.wait_sent(1)
        if begun:
            await client.head()
            await client.more()
        if behind == "later":
            await client.send(GET)
            await proxy.get("/healthz")  # the one behind has been read before this is answered
        assert (await proxy.status())["lanes"]["active"] == 1
        await leave(client)
        with trio.fail_after(GONE_SECONDS):
            await sent.cut.wait()
            status = await proxy.until_idle(GONE_SECONDS)

    assert status["outcomes"] == {"client_gone": 1}


@pytest.mark.parametrize("script", [silent, on_go])
async def test_a_websocket_that_leaves_cuts_its_turn_within_a_second(
    proxy: Proxy, upstream: ScriptedUpstream, script: Callable[[Received], Awaitable[None]]
) -> None:
    upstream.script = script
    close = frame(CLOSE, b"\x03\xe8")
    ways: list[Leave] = [WireClient.hang_up, WireClient.reset, lambda client: client.send(close)]
    with trio.fail_after(SECONDS):
        for number, leave in enumerate(ways, 1):
            socket = await proxy.websocket()
            await socket.send(create("t"))
            sent = await upstream.wait_sent(number)
            await socket.send({"type": "response.processed"})
            await leave(socket.client)
            with trio.fail_after(GONE_SECONDS):
                await sent.cut.wait()
                status = await proxy.until_idle(GONE_SECONDS)

    assert status["outcomes"] == {"client_gone": len(ways)}


@pytest.mark.parametrize("leave", [WireClient.hang_up, WireClient.reset])
async def test_a_client_may_leave_after_any_byte(
    proxy: Proxy, upstream: ScriptedUpstream, leave: Leave
) -> None:
    upstream.script = on_go
    whole = post(named("t"), b'{"stream":true,"input":[]}')
    opening = request("GET", "/v1/responses", {"connection": "upgrade", "upgrade": "websocket"})
    with trio.fail_after(SECONDS):
        for text in (whole, opening):
            for length in range(0, len(text), 3):
                client = await proxy.connect()
                await client.send(text[:length])
                await leave(client)
        status = await proxy.until_idle()

    assert upstream.sent == []
    assert status["state"] == "ready"


async def test_an_upstream_that_is_reset_gives_the_lane_back_every_time(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    async def reset(sent: Received) -> None:
        await sent.created()
        await WireClient(sent.stream).reset()

    upstream.script = reset
    with trio.fail_after(SECONDS):
        for _ in range(10):
            client = await proxy.connect()
            await client.send(post(named("t")))
            await client.wait_closed()
            await client.hang_up()
            await proxy.until_idle()
        upstream.script = on_go
        client = await proxy.connect()
        await client.send(post(named("t")))
        (await upstream.wait_sent(11)).go.set()

        assert b"response.completed" in (await client.answer()).body
