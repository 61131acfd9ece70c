"""Bodies that are wrong, or very large: a clear error, and a turn beside them is unharmed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import pytest
import trio
import zstandard

from harness.wire.client import Answer, WireClient
from harness.wire.upstream import Received, ScriptedUpstream, at_once
from harness.wire.websocket import BINARY, TEXT, Closed, WebSocket, frame
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create, named, post

pytestmark = pytest.mark.load  # large bodies, real drains and stalls: seconds each

SECONDS = 30
MIB: Final = 2**20
GOOD: Final = b'{"stream":true,"input":"hello"}'


@pytest.fixture
async def beside(proxy: Proxy, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """The proxy, with a turn in mid-stream that must finish, and nothing held afterwards."""

    async def script(sent: Received) -> None:
        if sent.headers.get("thread-id") != "bystander":
            await at_once(sent)
            return
        await sent.created()
        await sent.go.wait()
        await sent.completed()

    upstream.script = script
    client = await proxy.connect()
    await client.send(post(named("bystander")))
    sent = await upstream.wait_sent(1)
    await client.head()
    yield proxy
    sent.go.set()
    body = b""
    with trio.fail_after(SECONDS):
        while chunk := await client.more():
            body += chunk
        assert b"response.completed" in body
        await client.hang_up()
        await proxy.until_idle()


def _zstd_bomb() -> bytes:
    return zstandard.compress(bytes(128 * MIB), 1)


def _gzip_bomb() -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([compressor.compress(bytes(MIB)) for _ in range(80)]) + compressor.flush()


def _bad() -> dict[str, tuple[Mapping[str, str], bytes, int, str]]:
    """Headers and body, and what is answered."""
    return {
        "no JSON": ({}, b"hello", 400, "bad_request"),
        "nothing": ({}, b"", 400, "bad_request"),
        "no object": ({}, b"[1]", 400, "bad_request"),
        "half an object": ({}, b'{"stream":true', 400, "bad_request"),
        "nested too deep": ({}, b'{"input":' + b"[" * 100_000, 400, "bad_request"),
        "no UTF-8": ({}, b'{"model":"\xff\xfe"}', 400, "bad_request"),
        "unknown coding": ({"content-encoding": "br"}, GOOD, 415, "unsupported_encoding"),
        "too many codings": (
            {"content-encoding": "gzip, gzip, gzip, gzip"},
            GOOD,
            415,
            "unsupported_encoding",
        ),
        "corrupt gzip": (
            {"content-encoding": "gzip"},
            gzip.compress(GOOD)[:-9],
            400,
            "bad_request",
        ),
        "corrupt zstd": ({"content-encoding": "zstd"}, b"no zstd", 400, "bad_request"),
        "half a zstd": (
            {"content-encoding": "zstd"},
            zstandard.compress(GOOD)[:-3],
            400,
            "bad_request",
        ),
        "corrupt deflate": ({"content-encoding": "deflate"}, b"\x78\x9cxx", 400, "bad_request"),
        "zstd bomb": ({"content-encoding": "zstd"}, _zstd_bomb(), 413, "too_large"),
        "gzip bomb": ({"content-encoding": "gzip"}, _gzip_bomb(), 413, "too_large"),
        "announced too large": ({"content-length": str(65 * MIB)}, b"x", 413, "too_large"),
    }


async def test_every_bad_body_gets_its_error_and_harms_nobody(
    beside: Proxy, upstream: ScriptedUpstream
) -> None:
    with trio.fail_after(SECONDS):
        for name, (headers, body, status, code) in _bad().items():
            client = await beside.connect()
            await client.send(post({**named("t"), **headers}, body))
            head = await client.head()
            content = b""
            while len(content) < int(head.headers["content-length"]):
                content += await client.more()
            answer = Answer(status=head.status, headers=head.headers, body=content)
            assert (answer.status, answer.code) == (status, code), name
            assert answer.headers["x-turnlane-refusal"] == code, name
            await client.hang_up()

        assert len(upstream.sent) == 1


async def test_a_body_in_chunks_that_grows_too_large_is_refused(beside: Proxy) -> None:
    with trio.fail_after(SECONDS):
        client = await beside.connect()
        await client.send(post({**named("t"), "transfer-encoding": "chunked"}, b""))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_chunks, client, 65)
            answer = await client.answer()
        await client.hang_up()

        assert (answer.status, answer.code) == (413, "too_large")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "identity"])
async def test_a_compressed_body_goes_up_as_it_was_meant(
    beside: Proxy, upstream: ScriptedUpstream, coding: str
) -> None:
    forms: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.compress,
        "identity": bytes,
    }
    body = forms[coding](GOOD)
    with trio.fail_after(SECONDS):
        client = await beside.connect()
        await client.send(post({**named("t"), "content-encoding": coding}, body))
        assert (await client.answer()).status == 200
        await client.hang_up()

        assert upstream.sent[-1].body == GOOD
        assert "content-encoding" not in upstream.sent[-1].headers


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


async def test_a_frame_of_17_mib_is_served(beside: Proxy, upstream: ScriptedUpstream) -> None:
    with trio.fail_after(SECONDS):
        socket = await beside.websocket()
        await socket.send(create("t", input="x" * 17 * MIB))
        await socket.until("response.completed")
        await socket.client.hang_up()

        assert len(upstream.sent[-1].body) > 17 * MIB


async def test_a_frame_of_65_mib_is_refused_and_the_socket_goes_on(beside: Proxy) -> None:
    with trio.fail_after(SECONDS):
        socket = await beside.websocket()
        await socket.raw(frame(TEXT, b" " * 65 * MIB))
        refused = await socket.event()
        assert (refused["status"], refused["error"]["code"]) == (413, "too_large")
        await socket.send(create("t"))
        await socket.until("response.completed")
        await socket.client.hang_up()


async def test_a_frame_of_81_mib_ends_the_socket_with_1009(beside: Proxy) -> None:
    with trio.fail_after(SECONDS):
        socket = await beside.websocket()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_without_end, socket)
            while not isinstance(event := await socket.event(), Closed):
                assert event["error"]["code"] == "too_large"
            nursery.cancel_scope.cancel()
        await socket.client.hang_up()
        status = await beside.until(lambda status: status["websockets"]["active"] == 0)

        assert event == Closed(1009)
        assert status["refusals"] == {"too_large": 1}


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


async def _chunks(client: WireClient, count: int) -> None:
    piece = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB)
    for _ in range(count):
        await client.send(piece)
    await client.send(b"0\r\n\r\n")


async def _without_end(socket: WebSocket) -> None:
    """A message that is never finished."""
    try:
        await socket.raw(frame(TEXT, b" " * MIB, final=False))
        while True:
            await socket.raw(frame(0, b" " * MIB, final=False))
    except trio.BrokenResourceError:
        return
