"""Protocol: HTTP/1.1 and WebSocket on one connection, without hypercorn's sharp edges.

Theory of operation
-------------------
hypercorn 0.18 speaks HTTP/1.1 and WebSocket well, but some input breaks it:

- A header that is not ASCII where it expects ASCII raises out of the server.
- An HTTP/2 preface or `Upgrade: h2c` changes the protocol.
- permessage-deflate is accepted whenever it is offered.
- A frame that arrives before the handshake is answered leaves a handler that misses the hang-up.
- A broken frame ends a WebSocket without a Close frame; one that is too large does not end it.
- After a second, pipelined request it stops reading, and so does not notice a hang-up.

This module decides all of that, between h11 and hypercorn's streams. A connection that cannot go on
raises ConnectionEnded, after its peer has been told why.
"""

from collections.abc import Callable
from typing import Any, Final

import h11
import msgspec
import trio
from hypercorn.events import Closed
from hypercorn.protocol.events import Body, Data, Event, Request, Response, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import FrameTooLargeError, Handshake, WebsocketBuffer, WSStream
from hypercorn.typing import ASGISendEvent
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping
from wsproto.frame_protocol import CloseReason

from proxy.server.stream import ClientStream

_ASCII_ONLY: Final = frozenset(
    {b"connection", b"upgrade", b"sec-websocket-protocol", b"sec-websocket-version"}
)
_DROPPED: Final = frozenset({b"sec-websocket-extensions"})
"""Compression costs more CPU than loopback bytes are worth, so no extension is negotiated."""


class ConnectionEnded(Exception):  # noqa: N818
    """The connection cannot go on; its peer has been told why, where that is possible."""


class ReadingOn:
    """Replace the event at which hypercorn stops reading after a second request.

    A request that arrives after the last byte of an answer waits until hypercorn is ready for it.
    One that arrives during an answer ends the connection once that answer is written; until then
    bytes are read and dropped, so that a hang-up is noticed.
    """

    def __init__(self, protocol: "Protocol", wire: ClientStream) -> None:
        self._protocol = protocol
        self._wire = wire
        self._unanswered = trio.CancelScope()

    async def clear(self) -> None:
        self._unanswered = trio.CancelScope()

    async def set(self) -> None:
        self._unanswered.cancel()

    def is_set(self) -> bool:
        return self._unanswered.cancel_called

    async def wait(self) -> None:
        answered = self._protocol.answered
        with self._unanswered:
            if answered:
                await trio.sleep_forever()
            await self._wire.read_on()
            await self._protocol.handle(Closed())
        if not answered:
            raise ConnectionEnded("a second request behind a running one")
        if self._protocol.connection.our_state is h11.DONE:
            raise ConnectionEnded("a second request during the drain")


class _Buffer(WebsocketBuffer):
    """Count a message in bytes; hypercorn counts characters."""

    def extend(self, event: Message[Any]) -> None:
        super().extend(event)
        if isinstance(event.data, str) and not event.data.isascii():
            self.length += len(event.data.encode()) - len(event.data)


class Stream(WSStream):
    """A WebSocket. `told` is called with the bytes of an unfinished message that have arrived."""

    told: Callable[[int], None] | None = None

    async def handle(self, event: Event) -> None:
        if isinstance(event, Request):
            self.buffer = _Buffer(self.config.websocket_max_message_size)
            self._pings = trio.CancelScope()
            self._answered = trio.Event()
        elif isinstance(event, Data):
            await self._answered.wait()  # a client may send a frame before that
            if not self.handshake.accepted:
                return
        await super().handle(event)
        if isinstance(event, Data):
            self._tell()
        if self.closed:
            self._pings.cancel()

    async def app_send(self, message: ASGISendEvent | None) -> None:
        await super().app_send(message)
        self._answered.set()

    @property
    def open(self) -> bool:
        """Whether frames may still be sent."""
        return not self.closed and self.connection.state is ConnectionState.OPEN

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                try:
                    self.buffer.extend(event)
                except FrameTooLargeError:
                    self._tell()
                    await self._end(CloseConnection(code=CloseReason.MESSAGE_TOO_BIG))
                    return
                if event.message_finished:
                    assert self.app_put is not None, "nothing is heard before the handshake"
                    await self.app_put(self.buffer.to_message())
                    self.buffer.clear()
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):  # the peer's own, or what was wrong with it
                await self._end(event.response())
                return

    def _tell(self) -> None:
        if self.told is not None:
            self.told(self.buffer.length)

    async def _end(self, close: CloseConnection) -> None:
        await self._send_wsproto_event(close)
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _send_pings(self) -> None:
        with self._pings:
            await super()._send_pings()


class Protocol(H11Protocol):
    """hypercorn's protocol of one connection, with the checks that this module lists."""

    _left: int | None = None
    _bodiless = False
    _modern = True
    chunked = False
    """Whether the answer that has begun is sent in chunks (RFC 9112, section 7.1)."""

    @property
    def answered(self) -> bool:
        """Whether the last byte of the answer has been written."""
        return self.connection.our_state is h11.DONE or self._left == 0

    async def stream_send(self, event: Event) -> None:
        """Count down the length by which a client knows, before hypercorn, that an answer ended."""
        if isinstance(event, Response):
            length = b"0" if self._bodiless else dict(event.headers).get(b"content-length")
            self._left = None if length is None else int(length)
            empty = self._bodiless or event.status_code in (204, 304)
            self.chunked = length is None and self._modern and not empty
        elif isinstance(event, Body) and self._left is not None:
            self._left -= len(event.data)
        await super().stream_send(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        self._left = None
        self._bodiless = event.method == b"HEAD"
        self._modern = event.http_version >= b"1.1"
        upgrade = b""
        size = len(event.target)
        for name, value in event.headers:
            size += len(name) + len(value)
            if name in _ASCII_ONLY and not value.isascii():
                await self._end(400, f"the header {name.decode('ascii')} must be ASCII")
            if name == b"upgrade":
                upgrade = value.strip().lower()
        if size > self.config.h11_max_incomplete_size:  # h11 checks only incomplete headers
            await self._end(431)
        if upgrade == b"h2c" or event.method == b"PRI":
            await self._end(505, "turnlane speaks HTTP/1.1 and WebSocket, not HTTP/2")

    async def _create_stream(self, request: h11.Request) -> None:
        headers = list(request.headers)
        kind: type[HTTPStream | Stream] = HTTPStream
        if _is_upgrade(request):
            headers = [pair for pair in headers if pair[0] not in _DROPPED]
            version = request.http_version.decode("ascii")
            if not Handshake(headers, version).is_valid():
                await self._end(400, "this is not a handshake of WebSocket version 13")
            kind = Stream
        self.stream = kind(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        if isinstance(self.stream, Stream):
            assert isinstance(self.connection, h11.Connection)
            self.connection = H11WSConnection(self.connection)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode("ascii"),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    async def _end(self, status: int, message: str = "") -> None:
        """Answer with an error and raise ConnectionEnded."""
        await self._send_error_response(status, message)
        raise ConnectionEnded(message)

    async def _send_error_response(self, status_code: int, message: str = "") -> None:
        error = {
            "type": "invalid_request_error",
            "code": "bad_request",
            "message": message or _problem(status_code),
            "retryable": False,
        }
        body = msgspec.json.encode({"error": error})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if not self._bodiless:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


def _is_upgrade(request: h11.Request) -> bool:
    values = {name: value.lower() for name, value in request.headers}
    tokens = [token.strip() for token in values.get(b"connection", b"").split(b",")]
    websocket = values.get(b"upgrade", b"").strip() == b"websocket"
    return websocket and b"upgrade" in tokens and request.method.upper() == b"GET"


def _problem(status: int) -> str:
    if status == 431:
        return "the request line and headers are too large"
    return "this is not an HTTP/1.1 request"
