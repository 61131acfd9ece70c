"""WebSocket frames of every kind: what is wrong is said, and what is odd but right is served."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import trio

from harness.wire.upstream import Received, ScriptedUpstream, at_once, on_go
from harness.wire.websocket import CLOSE, PING, PONG, TEXT, Closed, WebSocket, frame
from tests.e2e.proxy import Proxy, open_proxy
from tests.testkit.wire import create

SECONDS = 10
GONE_SECONDS = 1.0
CONTINUATION: Final = 0


def _json(document: Any) -> bytes:
    return frame(TEXT, json.dumps(document).encode())


ENDED: Final = {
    "a reserved bit": (frame(TEXT, b"{}", reserved=4), 1002),
    "a reserved opcode": (frame(3, b"{}"), 1002),
    "no mask": (frame(TEXT, b"{}", masked=False), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"{}"), 1002),
    "a message within another": (frame(TEXT, b"{", final=False) + frame(TEXT, b"}"), 1002),
    "a ping in two parts": (frame(PING, b"x", final=False), 1002),
    "a ping that is too long": (frame(PING, b"x" * 126), 1002),
    "no UTF-8": (frame(TEXT, b"\xff"), 1007),
    "half a letter": (frame(TEXT, "\N{EURO SIGN}".encode()[:2]), 1007),
    "a close": (frame(CLOSE, b"\x03\xe8bye"), 1000),
    "a close of its own code": (frame(CLOSE, (4000).to_bytes(2, "big")), 4000),
    "a close without a code": (frame(CLOSE), 1005),
    "a close with half a code": (frame(CLOSE, b"\x03"), 1002),
    "a close with a forbidden code": (frame(CLOSE, (1005).to_bytes(2, "big")), 1002),
}


@pytest.mark.parametrize("script", [at_once, on_go])
async def test_an_invalid_frame_ends_the_socket_with_its_code(
    proxy: Proxy, upstream: ScriptedUpstream, script: Callable[[Received], Awaitable[None]]
) -> None:
    upstream.script = script
    with trio.fail_after(SECONDS):
        for name, (sent, code) in ENDED.items():
            socket = await proxy.websocket()
            await socket.send(create("t"))
            await socket.until("response.created" if script is on_go else "response.completed")
            await socket.raw(sent)
            assert await socket.event() == Closed(code), name
            assert await socket.client.wait_closed() == b"", name
            await socket.client.hang_up()
            await proxy.until_idle(GONE_SECONDS)


async def test_a_message_in_many_frames_with_pings_between_is_one_message(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    text = json.dumps(create("t", input="h\N{EURO SIGN}llo"), ensure_ascii=False).encode()
    pieces = [text[place : place + 1] for place in range(len(text))]
    with trio.fail_after(SECONDS):
        socket = await proxy.websocket()
        for number, piece in enumerate(pieces):
            opcode = CONTINUATION if number else TEXT
            await socket.raw(frame(opcode, piece, final=number == len(pieces) - 1))
            if number % 10 == 0:
                await socket.raw(frame(PING, b"%d" % number) + frame(CONTINUATION, final=False))
        pongs = await _pongs(socket)
        await socket.until("response.completed")

        assert pongs == [b"%d" % number for number in range(0, len(pieces), 10)]
        assert "h\N{EURO SIGN}llo" in upstream.sent[0].body.decode()


async def test_an_idle_websocket_is_pinged(upstream: ScriptedUpstream) -> None:
    async with open_proxy(upstream.url, client={"ping_seconds": 0.05}) as proxy:
        with trio.fail_after(SECONDS):
            socket = await proxy.websocket()

            assert (await socket.frame())[0] == PING


async def test_frames_after_a_close_are_ignored(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    with trio.fail_after(SECONDS):
        socket = await proxy.websocket()
        await socket.raw(frame(CLOSE, b"\x03\xe8") + _json(create("t")))
        assert await socket.event() == Closed(1000)
        await socket.client.hang_up()
        await proxy.until_idle()

    assert upstream.sent == []


async def _pongs(socket: WebSocket) -> list[bytes]:
    """The pongs before the first event."""
    found = []
    while (got := await socket.frame())[0] != TEXT:
        assert got[0] in (PING, PONG)
        if got[0] == PONG:
            found.append(got[1])
    return found
