"""Lines over loopback, against a peer that says what the test wants."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from harness.recall.calls import message
from harness.recall.faults import RecallTransport
from harness.recall.http_line import EventReader, HttpLine
from harness.recall.line import Address, LineClosed, LineRefused, StreamEvent, read_object
from harness.recall.requests import instructions
from harness.recall.ws_line import WsLine
from harness.wire.client import CutError, fetch
from tests.harness.recall.kit import small_plan

PLAN = small_plan(transport=RecallTransport.WS, sessions=1)
SESSION = PLAN.waves[0]
EXCHANGE = next(PLAN.exchanges()).exchange
NOBODY = Address(host="127.0.0.1", port=1)

Peer = Callable[[trio.SocketStream], Awaitable[None]]


def says(data: bytes, reads: int = 1) -> Peer:
    """A peer that answers every connection with these bytes, and hangs up."""

    async def peer(stream: trio.SocketStream) -> None:
        async with stream:
            for _ in range(reads):
                await stream.receive_some(65536)
            await stream.send_all(data)

    return peer


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[Address]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, peer, listeners)
            yield Address(host="127.0.0.1", port=listeners[0].socket.getsockname()[1])
            nursery.cancel_scope.cancel()


async def answer(data: bytes) -> list[object]:
    """All messages of an HTTP answer, up to its end."""
    async with listening(says(data)) as address:
        line = HttpLine(address, SESSION)
        await line.send(EXCHANGE, [instructions()])
        messages = [await line.receive()]
        while not isinstance(messages[-1], LineClosed):
            messages.append(await line.receive())
        await line.drop()
        return list(messages)


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_whole_stream_ends_cleanly() -> None:
    messages = await answer(STREAM + b'10\r\ndata: {"type":1}\r\n2\r\n\n\n\r\n0\r\n\r\n')

    assert messages == [StreamEvent({"type": 1}, b'data: {"type":1}'), LineClosed(clean=True)]


async def test_a_stream_that_stops_in_an_event_or_before_its_end_does_not() -> None:
    assert await answer(STREAM + b'10\r\ndata: {"type":1}\r\n0\r\n\r\n') == [
        LineClosed(clean=False)
    ]
    assert await answer(STREAM + b"3\r\n:\n\n\r\n") == [LineClosed(clean=False)]


async def test_an_http_refusal() -> None:
    body = b'{"error":{"code":"server_busy","message":"full"}}'
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nx-turnlane-refusal: lane_busy\r\n"
    data = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    refused, closed = await answer(data)

    assert isinstance(refused, LineRefused)
    assert (refused.status, refused.code, refused.message) == (503, "server_busy", "full")
    assert (refused.says_when, refused.reason) == (True, "lane_busy")
    assert str(refused) == "503 server_busy lane_busy"
    assert closed == LineClosed(clean=True)


@pytest.mark.parametrize("data", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_no_answer_at_all(data: bytes) -> None:
    assert await answer(data) == [LineClosed(clean=False)]


@pytest.mark.parametrize("line", [HttpLine, WsLine])
async def test_a_line_without_a_peer_is_closed(line: type[HttpLine | WsLine]) -> None:
    asking = line(NOBODY, SESSION)
    await asking.send(EXCHANGE, [instructions()])

    assert await asking.receive() == LineClosed(clean=False)
    assert await asking.receive() == LineClosed(clean=False)
    assert await asking.leftovers() == ()
    await asking.drop()


async def test_a_handshake_that_is_refused() -> None:
    body = b'{"error":{"code":"server_busy"}}'
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with listening(says(head + body)) as address:
        line = WsLine(address, SESSION)
        await line.send(EXCHANGE, [instructions()])
        refused = await line.receive()

    assert isinstance(refused, LineRefused)
    assert (refused.status, refused.code, refused.says_when) == (503, "server_busy", True)


@pytest.mark.parametrize("data", [b"", b"nonsense\r\n\r\n"])
async def test_a_handshake_that_comes_to_nothing(data: bytes) -> None:
    async with listening(says(data)) as address:
        line = WsLine(address, SESSION)
        await line.send(EXCHANGE, [instructions()])

        assert await line.receive() == LineClosed(clean=False)


async def test_a_get_needs_a_whole_answer() -> None:
    async with listening(says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as address:
        assert (await fetch(address.port, "GET", "/status")).body == b"ok"
    async with listening(says(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")) as address:
        with pytest.raises(CutError):
            await fetch(address.port, "GET", "/status")


def test_events_with_carriage_returns_and_comments() -> None:
    reader = EventReader()
    events = [*reader.feed(b": note\r\n\r\nevent: a\r\ndata:{\ndata: }\r\n"), *reader.feed(b"\r\n")]

    assert [event.fields for event in events] == [{}]
    assert reader.empty


@pytest.mark.parametrize("data", [b"no json", b"[1]", b""])
def test_anything_but_an_object_reads_as_an_empty_one(data: bytes) -> None:
    assert read_object(data) == {}
    assert StreamEvent(read_object(data), data).response_id == ""


async def test_a_request_that_is_not_read_may_be_answered_all_the_same() -> None:
    async with listening(says(b"HTTP/1.1 413 Large\r\ncontent-length: 0\r\n\r\n", 0)) as address:
        line = HttpLine(address, SESSION)
        await line.send(EXCHANGE, [message("user", "x" * 2**25, "msg_1")])
        answered = await line.receive()
        await line.drop()

    assert isinstance(answered, LineClosed) or (
        isinstance(answered, LineRefused) and answered.status == 413
    )


async def test_what_cannot_be_written_is_seen_when_it_is_read() -> None:
    async with listening(says(b"", 0)) as address:
        line = WsLine(address, SESSION)
        await line.send(EXCHANGE, [instructions()])

        assert not isinstance(await line.receive(), StreamEvent)
