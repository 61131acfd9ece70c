"""Bodies that are wrong, or very large: a clear error, and a turn beside them is unharmed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
import trio
import zstandard

from harness.wire.upstream import ScriptedUpstream
from harness.wire.websocket import BINARY, TEXT, Closed, frame
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import bystander, chunked, create, named, post

pytestmark = pytest.mark.load  # large bodies, real drains and stalls: seconds each

SECONDS = 30
MIB: Final = 2**20
GOOD: Final = b'{"stream":true,"input":"hello"}'


@pytest.fixture
async def beside(proxy: Proxy, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """The proxy, with a turn in mid-stream that must finish, and nothing held afterwards."""
    async with bystander(await proxy.connect(), upstream):
        yield proxy
    await proxy.until_idle()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-encoding": "zstd"}, zstandard.compress(bytes(128 * MIB), 1)),
        ({"content-length": str(65 * MIB)}, b"x"),
        ({"transfer-encoding": "chunked"}, chunked([bytes(MIB)] * 65)),
    ],
    ids=["a bomb", "announced", "in chunks"],
)
async def test_a_body_that_is_too_large_is_refused_and_harms_nothing(
    beside: Proxy, upstream: ScriptedUpstream, headers: dict[str, str], body: bytes
) -> None:
    with trio.fail_after(SECONDS):
        client = await beside.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post({**named("t"), **headers}, body))
            head = await client.head()
        assert (head.status, head.headers["x-turnlane-refusal"]) == (413, "too_large")
        await client.hang_up()

        assert len(upstream.sent) == 1


async def test_a_client_that_waits_to_be_told_is_told_to_go_on(
    beside: Proxy, upstream: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        client = await beside.connect()
        head = {**named("t"), "expect": "100-continue", "content-length": str(len(GOOD))}
        await client.send(post(head, b""))
        assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await client.send(GOOD)
        assert (await client.answer()).status == 200
        await client.hang_up()

        assert upstream.sent[-1].body == GOOD


async def test_a_frame_of_17_mib_is_served_and_one_of_65_refused_on_the_same_socket(
    beside: Proxy, upstream: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        socket = await beside.websocket()
        await socket.raw(frame(TEXT, b" " * 65 * MIB))
        refused = await socket.event()
        assert (refused["status"], refused["error"]["code"]) == (413, "too_large")
        await socket.send(create("t", input="x" * 17 * MIB))
        await socket.until("response.completed")
        await socket.client.hang_up()

        assert len(upstream.sent[-1].body) > 17 * MIB


async def test_a_frame_counts_in_bytes_whatever_its_letters_are(upstream: ScriptedUpstream) -> None:
    small = {"body_bytes": MIB, "message_bytes": 2 * MIB}
    euro = "\N{EURO SIGN}".encode()
    with trio.fail_after(SECONDS):
        async with open_proxy(upstream.url, client=small) as proxy:
            socket = await proxy.websocket()
            await socket.raw(frame(TEXT, euro * (MIB // 2)))
            refused = await socket.event()
            assert (refused["status"], refused["error"]["code"]) == (413, "too_large")
            await socket.raw(frame(BINARY, bytes(MIB)))
            assert (await socket.event())["error"]["code"] == "unsupported_frame"
            await socket.raw(frame(TEXT, euro * MIB))
            while not isinstance(event := await socket.event(), Closed):
                assert event["error"]["code"] == "too_large"

            assert event == Closed(1009)
