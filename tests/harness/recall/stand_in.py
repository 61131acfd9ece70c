"""A proxy of the plainest kind, in process: what the harness is tried out on.

It keeps to the part of the wire that a run uses. One stream is one connection of a client.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import msgspec
import trio

from harness.recall.client import CutError, HttpExchange, open_stream
from harness.recall.http_line import EventReader
from harness.recall.line import Address, Event
from harness.recall.wire import TERMINALS
from tests.harness.recall.books import PARENT, Books, NoLaneError, NoTurnError
from tests.harness.recall.stand_in_socket import Socket

READ_BYTES = 65536
REFUSAL_HEADERS = {"retry-after": "2", "x-turnlane-refusal": "lanes_at_capacity"}
REFUSAL = {"error": {"code": "server_busy", "message": "64 lanes are held"}}
BUSY_HEADERS = {"retry-after": "5", "x-turnlane-refusal": "workflow_concurrency_exhausted"}
BUSY = {"error": {"code": "queue_capacity_exceeded", "message": "8 turns are held"}}
SENT_UP = (
    "thread-id",
    "session-id",
    "authorization",
    "x-codex-turn-metadata",
    PARENT,
    "x-openai-subagent",
)

Tell = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """How a turn ended when no terminal event ended it."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str]


class StandIn:
    def __init__(self, upstream: int, books: Books) -> None:
        self._upstream = upstream
        self.books = books

    async def serve(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        async with stream:
            request, body = await _read_request(stream, http)
            headers = {name.decode(): value.decode() for name, value in request.headers}
            if "sec-websocket-key" in headers:
                with self.books.socket():
                    await Socket(stream, request, headers, self).run()
            elif request.method == b"GET":
                document = msgspec.json.encode(self.books.document())
                await stream.send_all(_head(http, 200, {}) + _rest(http, document))
            else:
                await _unless_gone(stream, partial(self._exchange, stream, http, headers, body))

    async def turn(
        self, headers: Mapping[str, str], body: Mapping[str, Any], tell: Tell
    ) -> Event | Answer | None:
        """Tell all events but the last, and return that; the lane is free by then. None: cut."""

        async def tell_on(event: Event) -> None:
            give_back()
            await tell(event)

        try:
            with (
                self.books.turn(headers) as give_back,
                self.books.lane(headers["thread-id"]),
            ):
                return await self._relay(headers, body, tell_on)
        except NoTurnError:
            return Answer(429 if "sec-websocket-key" in headers else 503, BUSY, BUSY_HEADERS)
        except NoLaneError:
            return Answer(503, REFUSAL, REFUSAL_HEADERS)

    async def _relay(
        self, headers: Mapping[str, str], body: Mapping[str, Any], tell: Tell
    ) -> Event | Answer | None:
        up = tuple((name, headers[name]) for name in SENT_UP if name in headers)
        async with await open_stream("127.0.0.1", self._upstream) as stream:
            http = HttpExchange(stream)
            data = msgspec.json.encode(body)
            await http.send("POST", "/v1/responses", (("host", "upstream"), *up), data)
            try:
                status, answered = await http.read_head()
            except CutError:
                return Answer(502, {"error": {"code": "cut"}}, {"retry-after": "2"})
            if status != 200:
                document = msgspec.json.decode(await http.read_all())
                advice = {"retry-after": answered.get("retry-after", "2")}
                return Answer(status, document, advice)
            return await _events(http, tell)

    async def _exchange(
        self,
        stream: trio.SocketStream,
        http: h11.Connection,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        async def tell(event: Event) -> None:
            head = _head(http, 200, {}) if http.our_state is h11.SEND_RESPONSE else b""
            await stream.send_all(head + _part(http, event.data + b"\n\n"))

        last = await self.turn(headers, msgspec.json.decode(body), tell)
        if isinstance(last, Answer):
            data = msgspec.json.encode(last.document)
            await stream.send_all(_head(http, last.status, last.headers) + _rest(http, data))
        elif last is not None:
            await tell(last)
            await stream.send_all(_rest(http, b""))


async def _events(http: HttpExchange, tell: Tell) -> Event | None:
    reader = EventReader()
    try:
        while data := await http.read():
            for event in reader.feed(data):
                if event.type in TERMINALS:
                    return event
                await tell(event)
    except CutError:
        pass
    return None


async def _unless_gone(stream: trio.SocketStream, act: Callable[[], Awaitable[None]]) -> None:
    """Act, but no longer than the client is there."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            with suppress(trio.BrokenResourceError):
                await stream.receive_some(1)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        with suppress(trio.BrokenResourceError):
            await act()
        nursery.cancel_scope.cancel()


async def _read_request(
    stream: trio.SocketStream, http: h11.Connection
) -> tuple[h11.Request, bytes]:
    request, body = None, bytearray()
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
    assert request is not None
    return request, bytes(body)


def _head(http: h11.Connection, status: int, headers: Mapping[str, str]) -> bytes:
    fields = [("connection", "close"), *headers.items()]
    return _sent(http, h11.Response(status_code=status, headers=fields))


def _part(http: h11.Connection, data: bytes) -> bytes:
    return _sent(http, h11.Data(data=data))


def _rest(http: h11.Connection, data: bytes) -> bytes:
    return _part(http, data) + _sent(http, h11.EndOfMessage())


def _sent(http: h11.Connection, event: h11.Event) -> bytes:
    return http.send(event) or b""


@asynccontextmanager
async def open_stand_in(upstream: int, books: Books) -> AsyncIterator[Address]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stand_in = StandIn(upstream, books)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, stand_in.serve, listeners)
        yield Address(host="127.0.0.1", port=listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()
