"""Upstreams that fail, on real sockets: every one is told, and nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
import trio

from harness.wire.client import HOST, CutError
from harness.wire.upstream import Received, Script, ScriptedUpstream, at_once
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create, named, post

SECONDS = 20
CLOSED_PORT: Final = 9


@pytest.fixture
async def unreachable() -> AsyncIterator[Proxy]:
    async with open_proxy(f"http://{HOST}:{CLOSED_PORT}/v1") as proxy:
        yield proxy


async def closed_behind(sent: Received) -> None:
    await at_once(sent)
    await sent.stream.aclose()


async def closed_at_once(sent: Received) -> None:
    await sent.stream.aclose()


async def closed_in_the_middle(sent: Received) -> None:
    await sent.created()
    await sent.stream.aclose()


async def no_http(sent: Received) -> None:
    await sent.stream.send_all(b"220 mail.example ready\r\n")
    await sent.stream.aclose()


async def broken_chunks(sent: Received) -> None:
    await sent.created()
    await sent.stream.send_all(b"xyz\r\n")
    await sent.go.wait()


async def test_an_upstream_that_cannot_be_reached_is_said_to_be_so(unreachable: Proxy) -> None:
    with trio.fail_after(SECONDS):
        client = await unreachable.connect()
        await client.send(post(named("t")))
        answer = await client.answer()
        socket = await unreachable.websocket()
        await socket.send(create("u"))
        event = await socket.event()
        models = await unreachable.get("/v1/models")

        for status, code in (
            (answer.status, answer.code),
            (event["status"], event["error"]["code"]),
            (models.status, models.code),
        ):
            assert (status, code) == (502, "upstream_unreachable")
        assert int(answer.headers["retry-after"]) >= 1
        assert int(event["headers"]["retry-after"]) >= 1
        assert "x-turnlane-refusal" not in answer.headers
        await socket.client.hang_up()
        await unreachable.until_idle()


@pytest.mark.parametrize("script", [closed_at_once, no_http])
async def test_an_upstream_that_fails_before_its_answer_is_asked_twice(
    proxy: Proxy, upstream: ScriptedUpstream, script: Script
) -> None:
    upstream.script = script
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post(named("t")))
        answer = await client.answer()

        assert (answer.status, answer.code) == (502, "upstream_unreachable")
        assert len(upstream.sent) == 2
        upstream.script = at_once
        await client.send(post(named("t")))
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("script", [closed_in_the_middle, broken_chunks])
async def test_a_stream_that_is_cut_is_visibly_cut_and_never_sent_again(
    proxy: Proxy, upstream: ScriptedUpstream, script: Script
) -> None:
    upstream.script = script
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        await client.send(post(named("t")))
        await client.head()
        with pytest.raises(CutError):
            await client.body()
        socket = await proxy.websocket()
        await socket.send(create("u"))
        await socket.until("response.created")
        event = await socket.event()
        assert (event["status"], event["error"]["code"]) == (502, "upstream_cut")
        assert event["headers"]["retry-after"] == "1"
        assert len(upstream.sent) == 2
        upstream.script = at_once
        await socket.send(create("u"))
        await socket.until("response.completed")
        await socket.client.hang_up()
        status = await proxy.until_idle()

    assert status["outcomes"] == {"cut": 2, "completed": 1}


async def test_an_upstream_may_close_after_every_answer(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.script = closed_behind
    with trio.fail_after(SECONDS):
        client = await proxy.connect()
        for _ in range(30):
            await client.send(post(named("t")))
            assert b"response.completed" in (await client.answer()).body

    assert len(upstream.sent) == 30
