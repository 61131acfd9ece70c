"""Connection: hypercorn's protocol for one accepted socket, with its sharp edges taken off.

Theory of operation
-------------------
hypercorn 0.18 speaks HTTP/1.1 and WebSocket well, but some requests hurt it: a header that is not
ASCII where it expects ASCII raises out of the server; an HTTP/2 preface or `Upgrade: h2c` changes
the protocol; permessage-deflate is accepted whenever it is offered; and behind a second request it
stops reading, so that a hang-up is never seen. All of that is decided in `Protocol`, between h11
and hypercorn's streams. A connection that cannot go on raises ConnectionEnded; `serve.py` catches
it, and whatever else leaves one connection.
"""

from collections.abc import Callable, Sequence
from typing import Final

import h11
import msgspec
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Data, Event, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr

from proxy.wire import Wire, text_frames

_ASCII_ONLY: Final = frozenset(
    {b"connection", b"upgrade", b"sec-websocket-protocol", b"sec-websocket-version"}
)
_DROPPED: Final = frozenset({b"sec-websocket-extensions"})
"""Compressing costs more CPU than loopback bytes are worth, so no extension is negotiated."""


class ConnectionEnded(Exception):  # noqa: N818
    """This connection cannot go on; its peer has been told what can be told."""


class _ReadingOn:
    """Stands where hypercorn would stop reading, behind a second request.

    One that comes after the last byte of an answer waits a moment, until hypercorn is ready for it.
    One behind a running answer ends the connection, once that answer is written; meanwhile bytes
    are read and dropped, so that a hang-up is noticed.
    """

    def __init__(self, protocol: "Protocol", wire: Wire) -> None:
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
        answered = self._protocol.connection.our_state is h11.DONE
        with self._unanswered:
            if answered:
                await trio.sleep_forever()
            await self._wire.read_on()
            await self._protocol.handle(Closed())
        if not answered:
            raise ConnectionEnded("a second request behind a running one")


class _MeteredStream(WSStream):
    """Tells the handler how much of an unfinished message has arrived."""

    told: Callable[[int], None] | None = None

    async def handle(self, event: Event) -> None:
        await super().handle(event)
        if isinstance(event, Data) and self.told is not None:
            self.told(self.buffer.length)


class Protocol(H11Protocol):
    """HTTP/1.1 and WebSocket on one connection, and nothing else."""

    async def _check_protocol(self, event: h11.Request) -> None:
        upgrade = b""
        for name, value in event.headers:
            if name in _ASCII_ONLY and not value.isascii():
                await self._end(400, f"the header {name.decode('ascii')} must be ASCII")
            if name == b"upgrade":
                upgrade = value.strip().lower()
        if upgrade == b"h2c" or event.method == b"PRI":
            await self._end(505, "turnlane speaks HTTP/1.1 and WebSocket, not HTTP/2")

    async def _create_stream(self, request: h11.Request) -> None:
        if not _is_upgrade(request):
            await super()._create_stream(request)
            return
        assert isinstance(self.connection, h11.Connection)
        self.stream = _MeteredStream(
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
        self.connection = H11WSConnection(self.connection)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=[pair for pair in request.headers if pair[0] not in _DROPPED],
                http_version=request.http_version.decode("ascii"),
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        if self.stream.closed:  # hypercorn has answered a broken handshake and would linger
            raise ConnectionEnded("not a WebSocket handshake")

    async def _end(self, status: int, message: str) -> None:
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
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


class Connection(TCPServer):
    """One accepted socket, from its first byte to its last; the `Peer` of a WebSocket."""

    protocol: Protocol  # type: ignore[assignment]  # hypercorn's wrapper adds HTTP/2 to it

    def __init__(
        self, app: AppWrapper, config: HypercornConfig, context: WorkerContext, wire: Wire
    ) -> None:
        super().__init__(app, config, context, LifespanState({"peer": self}), wire)  # type: ignore[arg-type]  # a stream, to hypercorn
        self._wire = wire

    async def run(self) -> None:
        """Serve until either side ends it. Raises whatever hypercorn could not deal with."""
        socket = self._wire.socket
        try:
            async with TaskGroup() as self._task_group:
                self.protocol = Protocol(
                    self.app,
                    self.config,
                    self.context,
                    self._task_group,
                    ConnectionState(self.state),
                    False,
                    parse_socket_addr(socket.family, socket.getpeername()),
                    parse_socket_addr(socket.family, socket.getsockname()),
                    self.protocol_send,
                )
                self.protocol.can_read = _ReadingOn(self.protocol, self._wire)
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
        finally:
            with trio.CancelScope(shield=True):
                await self._close()

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        stream = self.protocol.stream
        if isinstance(stream, _MeteredStream):
            stream.told = told

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Write text frames beside hypercorn, under its own lock, in one go."""
        await self.protocol_send(RawData(text_frames(frames)))


def _is_upgrade(request: h11.Request) -> bool:
    values = {name: value.lower() for name, value in request.headers}
    tokens = [token.strip() for token in values.get(b"connection", b"").split(b",")]
    websocket = values.get(b"upgrade", b"").strip() == b"websocket"
    return websocket and b"upgrade" in tokens and request.method == b"GET"


def _problem(status: int) -> str:
    if status == 431:
        return "the request line and headers are too large"
    return "this is not an HTTP/1.1 request"
