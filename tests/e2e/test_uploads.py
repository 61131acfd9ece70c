"""Uploads that are refused at once: the client reads the answer, however it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest
import trio

from harness.wire.client import WireAnswer, WireClient
from harness.wire.upstream import ScriptedUpstream, on_go
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import chunked, named, post

SECONDS = 30
PIECE: Final = 64 * 1024
FEW, MANY = 3, 50

Upload = Callable[[WireClient, int], Awaitable[WireAnswer]]


@pytest.fixture
async def full(upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """A proxy whose only lane is taken."""
    upstream.script = on_go
    async with open_proxy(upstream.url, lanes={"limit": 1, "kept": 0}) as proxy:
        client = await proxy.connect()
        await client.send(post(named("holder")))
        sent = await upstream.wait_sent(1)
        yield proxy
        sent.go.set()
        assert b"response.completed" in (await client.answer()).body
        status = await proxy.until_idle()
        assert status["turns"]["admitted"] == 1
        assert len(upstream.sent) == 1


async def at_once(client: WireClient, size: int) -> WireAnswer:
    """Nothing is read before all of it is sent."""
    await client.send(post(named("t"), b"x" * size))
    return await client.answer()


async def in_pieces(client: WireClient, size: int) -> WireAnswer:
    """A piece, a moment for the others, the next piece."""
    await client.send(post({**named("t"), "content-length": str(size)}, b""))
    for start in range(0, size, PIECE):
        await client.send(b"x" * min(PIECE, size - start))
        await trio.lowlevel.checkpoint()
    return await client.answer()


async def in_chunks(client: WireClient, size: int) -> WireAnswer:
    pieces = [b"x" * PIECE] * (size // PIECE) + [b"x" * (size % PIECE + 1)]
    await client.send(post({**named("t"), "transfer-encoding": "chunked"}, chunked(pieces)))
    return await client.answer()


async def in_tiny_chunks(client: WireClient, size: int) -> WireAnswer:
    body = chunked([b"x" * 16] * (size // 4096))
    await client.send(post({**named("t"), "transfer-encoding": "chunked"}, body))
    return await client.answer()


async def expecting(client: WireClient, size: int) -> WireAnswer:
    """`Expect: 100-continue`: the body is sent once that is said, or not at all."""
    head = {**named("t"), "expect": "100-continue", "content-length": str(size)}
    await client.send(post(head, b""))
    said = await client.stream.receive_some()
    client.rest = bytes(said)
    if b" 100 " in said:
        await client.send(b"x" * size)
    return await client.answer()


@pytest.mark.parametrize("size", [600_000, 5_000_000])
@pytest.mark.parametrize("upload", [at_once, in_pieces, in_chunks, in_tiny_chunks, expecting])
@pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.load)])
async def test_a_refused_upload_reads_its_answer_every_time(
    full: Proxy, upload: Upload, size: int, rounds: int
) -> None:
    with trio.fail_after(SECONDS):
        for _ in range(rounds):
            client = await full.connect()
            answer = await upload(client, size)
            assert (answer.status, answer.code) == (503, "server_busy")
            assert answer.headers["retry-after"] == "2"
            assert answer.headers["x-turnlane-refusal"] == "lanes_at_capacity"
            assert answer.headers["connection"] == "close"
            assert await client.wait_closed() == b""
            await client.hang_up()


async def test_a_refused_upload_that_never_ends_still_leads_to_an_answer(
    upstream: ScriptedUpstream,
) -> None:
    settings = {"discard_seconds": 0.2, "body_bytes": 1000}
    async with open_proxy(upstream.url, client=settings) as proxy:
        with trio.fail_after(SECONDS):
            client = await proxy.connect()
            await client.send(post({"content-length": str(10**12)}, b""))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_without_end, client)
                answer = await client.answer()
                nursery.cancel_scope.cancel()
            assert (answer.status, answer.code) == (413, "too_large")
            await client.hang_up()


async def _without_end(client: WireClient) -> None:
    try:
        while True:
            await client.send(b"x" * PIECE)
    except trio.BrokenResourceError:
        return
