"""A WebSocket line speaks as Codex does: prewarm, increments, everything again on a new socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from harness.recall.calls import message
from harness.recall.faults import RecallTransport
from harness.recall.line import Address, LineClosed, LineRefused, StreamEvent
from harness.recall.requests import instructions, prewarm_frame
from harness.recall.ws_line import WsLine
from tests.harness.recall.kit import small_plan
from tests.harness.recall.peer import Peer

PLAN = small_plan(transport=RecallTransport.WS, sessions=1)
SESSION = PLAN.waves[0]
EXCHANGE = next(PLAN.exchanges()).exchange
HELLO = message("user", "hello", "msg_1")


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[WsLine, trio.MemoryReceiveChannel[Peer]]]:
    """A line whose every connection is handed to the test as a peer."""
    to_test, peers = trio.open_memory_channel[Peer](9)

    async def arrive(stream: trio.SocketStream) -> None:
        await to_test.send(Peer(stream))
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, arrive, listeners)
            port = listeners[0].socket.getsockname()[1]
            line = WsLine(Address(host="127.0.0.1", port=port), SESSION)
            yield line, peers
            await line.drop()
            nursery.cancel_scope.cancel()


async def asked(peer: Peer) -> dict[str, Any]:
    """Return the next frame that a peer is sent."""
    frame = await peer.frame()
    assert frame is not None
    return frame


async def warm(line: WsLine, peers: trio.MemoryReceiveChannel[Peer], *items: Any) -> Peer:
    """Send a first request; the peer, once it has answered the prewarm."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.send, EXCHANGE, [instructions(), *items])
        peer = await peers.receive()
        await peer.accept()
        assert (await asked(peer))["generate"] is False
        await peer.complete("resp_warm", "response.created")
        await peer.complete("resp_warm")
    return peer


async def test_the_first_request_continues_the_prewarm() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        frame = await asked(peer)

    assert frame["previous_response_id"] == "resp_warm"
    assert frame["input"] == [HELLO]
    assert frame["type"] == "response.create"


async def test_each_answer_makes_the_next_request_an_increment() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.frame()
        await peer.tell(type="response.output_item.done", item={"id": "a"})
        await peer.complete("resp_1")
        seen = [await line.receive(), await line.receive()]
        await line.send(EXCHANGE, [instructions(), HELLO, {"id": "a"}, {"id": "new"}])
        frame = await asked(peer)

    assert [message.type for message in seen if isinstance(message, StreamEvent)] == [
        "response.output_item.done",
        "response.completed",
    ]
    assert (frame["previous_response_id"], frame["input"]) == ("resp_1", [{"id": "new"}])


async def test_a_new_socket_is_not_prewarmed_and_gets_everything() -> None:
    async with connected() as (line, peers):
        await warm(line, peers, HELLO)
        await line.drop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.send, EXCHANGE, [instructions(), HELLO])
            peer = await peers.receive()
            await peer.accept()
        frame = await asked(peer)

    assert "previous_response_id" not in frame
    assert frame["input"] == [instructions(), HELLO]


async def test_an_answer_without_an_id_cannot_be_continued() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.frame()
        await peer.complete("")
        await line.receive()
        await line.send(EXCHANGE, [instructions(), HELLO])
        frame = await asked(peer)

    assert "previous_response_id" not in frame


async def test_an_interrupt_names_the_response_that_runs() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.frame()
        await peer.complete("resp_1", "response.created")
        await line.receive()
        answered = await line.interrupt()
        frame = await asked(peer)

    assert answered
    assert (frame["type"], frame["response_id"]) == ("response.interrupt", "resp_1")


async def test_a_prewarm_that_fails_is_the_answer() -> None:
    async with connected() as (line, peers):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.send, EXCHANGE, [instructions()])
            peer = await peers.receive()
            await peer.accept()
            await peer.frame()
            await peer.tell(type="error", status=503, error={"code": "server_busy"})
        refused = await line.receive()

    assert isinstance(refused, LineRefused)
    assert refused.code == "server_busy"


async def test_a_prewarm_without_an_id_is_a_failure() -> None:
    async with connected() as (line, peers):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.send, EXCHANGE, [instructions()])
            peer = await peers.receive()
            await peer.accept()
            await peer.frame()
            await peer.complete("")
        refused = await line.receive()

    assert refused == LineRefused(status=None, code="prewarm_without_id")


async def test_an_error_frame_however_its_status_is_spelt() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.tell(type="error", status_code=503, headers={"Retry-After": 2})
        await peer.tell(type="error", status="503", headers="none")
        spelt, bare = await line.receive(), await line.receive()

    assert isinstance(spelt, LineRefused)
    assert isinstance(bare, LineRefused)
    assert (spelt.status, spelt.says_when) == (503, True)
    assert (bare.status, bare.says_when) == (None, False)


async def test_a_socket_that_ends_says_so_once_and_for_all() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.close()
        messages = [await line.receive(), await line.receive()]

    assert messages == [LineClosed(clean=False)] * 2


async def test_a_socket_that_is_reset_is_found_out_when_it_is_written_to() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.reset()
        await line.send(EXCHANGE, [instructions(), HELLO])
        messages = [await line.receive()]
        answered = await line.interrupt()

    assert messages == [LineClosed(clean=False)]
    assert answered


async def test_what_comes_although_nothing_runs_is_left_over() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.frame()
        await peer.complete("resp_late")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_ping, peer)
            (late,) = await line.leftovers()

    assert isinstance(late, StreamEvent)
    assert late.response_id == "resp_late"


async def answer_ping(peer: Peer) -> None:
    event = await peer.hear()
    assert isinstance(event, Ping)
    await peer.say(event.response())


async def test_pings_are_answered_and_a_message_may_come_in_parts() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.frame()
        await peer.say(Ping(payload=b"p"))
        await peer.say(TextMessage(data='{"type":', message_finished=False))
        await peer.say(TextMessage(data='"keepalive"}'))
        message = await line.receive()
        pong = await peer.hear()

    assert isinstance(message, StreamEvent)
    assert (message.type, isinstance(pong, Pong)) == ("keepalive", True)


@pytest.mark.parametrize("end", [BytesMessage(data=b"bytes"), CloseConnection(code=1001)])
async def test_a_binary_message_or_a_close_frame_is_an_end(end: Event) -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.say(end)

        assert await line.receive() == LineClosed(clean=False)


async def test_nothing_is_left_over_from_a_socket_that_is_gone() -> None:
    async with connected() as (line, peers):
        peer = await warm(line, peers, HELLO)
        await peer.close()

        assert list(await line.leftovers()) == []


def test_a_prewarm_asks_for_nothing_to_be_generated() -> None:
    frame = prewarm_frame(SESSION)

    assert (frame["type"], frame["generate"]) == ("response.create", False)
    assert frame["input"] == [instructions()]
