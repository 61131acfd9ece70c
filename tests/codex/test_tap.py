"""The tap itself: it changes nothing, counts connections and reads frames, compressed or not."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage
from wsproto.extensions import Extension, PerMessageDeflate

from harness.wire.client import HOST, CutError, fetch, receive
from tests.codex.tap import Tap, start_tap
from tests.codex.upstream import answer, start_upstream

QUESTION = {"type": "response.create", "input": ["what " * 500]}
ANSWER = {"type": "response.completed", "response": {"id": "resp_1"}}


async def echo_server(stream: trio.SocketStream, *, deflate: bool) -> None:
    """Answers every message with the same one."""
    connection = WSConnection(ConnectionType.SERVER)
    extensions: list[Extension] = [PerMessageDeflate()] if deflate else []
    while data := await receive(stream):
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, Request):
                await stream.send_all(connection.send(AcceptConnection(extensions=extensions)))
            elif isinstance(event, TextMessage) and event.message_finished:
                await stream.send_all(connection.send(TextMessage(data=json.dumps(ANSWER))))


async def ask_twice(port: int) -> None:
    """A client that leaves without a word after its second answer."""
    connection = WSConnection(ConnectionType.CLIENT)
    request = Request(host=HOST, target="/v1/responses", extensions=[PerMessageDeflate()])
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(connection.send(request))
        answers = -1
        while answers < 2:
            connection.receive_data(await stream.receive_some())
            for event in connection.events():
                if isinstance(event, (AcceptConnection, TextMessage)):
                    answers += 1
                    question = TextMessage(data=json.dumps(QUESTION))
                    await stream.send_all(connection.send(question))


@pytest.mark.parametrize("deflate", [True, False], ids=["compressed", "plain"])
async def test_frames_are_read_in_both_directions(nursery: trio.Nursery, deflate: bool) -> None:
    handler = partial(echo_server, deflate=deflate)
    listeners = await nursery.start(partial(trio.serve_tcp, handler, 0, host=HOST))
    tap = await start_tap(nursery, listeners[0].socket.getsockname()[1])
    with trio.fail_after(5):
        await ask_twice(tap.port)
        await tap.links.entries[0].closed.wait()

    assert [link.is_websocket for link in tap.links.entries] == [True]
    assert ("permessage-deflate" in tap.links.entries[0].response_head) == deflate
    assert tap.sent()[:2] == [QUESTION, QUESTION]
    assert tap.received("response.completed")[:2] == [ANSWER, ANSWER]


async def test_plain_requests_are_passed_on_and_counted(nursery: trio.Nursery) -> None:
    upstream = await start_upstream(nursery, answer("hello"))
    tap: Tap = await start_tap(nursery, upstream.port)
    with trio.fail_after(5):
        replies = [await fetch(tap.port, "GET", target) for target in ("/v1/models", "/nothing")]

    assert [reply.status for reply in replies] == [200, 404]
    lines = [link.request_line for link in tap.links.entries]
    assert lines == ["GET /v1/models HTTP/1.1", "GET /nothing HTTP/1.1"]
    assert tap.websockets == []


async def test_a_target_that_is_away_closes_the_connection(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=HOST)
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    tap = await start_tap(nursery, port)
    with trio.fail_after(5), pytest.raises(CutError):
        await fetch(tap.port, "GET", "/v1/models")

    assert len(tap.links) == 1
