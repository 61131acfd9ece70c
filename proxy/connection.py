"""Connection: one accepted socket, from its first byte to its last; the `Peer` of a WebSocket.

Theory of operation
-------------------
hypercorn's TCPServer reads, writes and times idle connections out; `proxy.protocol` is what it
reads into. Three endings are ours. Where hypercorn closes, only our side is shut: closing on unread
bytes resets a connection, and a reset can take the last answer with it (see `Wire.linger`). Whoever
hangs up ends the idle timer too, which would otherwise hold the connection's place. And a handler
that has returned hears nothing any more: its queue is closed, so nobody waits for room in it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    ConnectionState,
    LifespanState,
    Scope,
)
from hypercorn.utils import parse_socket_addr

from proxy.protocol import Protocol, ReadingOn, Stream
from proxy.wire import Wire, text_frames

Put = Callable[[ASGIReceiveEvent], Awaitable[None]]


class _Tasks(TaskGroup):
    """hypercorn's tasks of one connection."""

    async def spawn_app(
        self,
        app: AppWrapper,
        config: HypercornConfig,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Put:
        events, queue = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)

        async def heard(
            scope: Scope,
            receive: ASGIReceiveCallable,
            send: ASGISendCallable,
            sync_spawn: Callable[..., Any],
            call_soon: Callable[..., Any],
        ) -> None:
            with queue:
                await app(scope, queue.receive, send, sync_spawn, call_soon)

        async def put(event: ASGIReceiveEvent) -> None:
            with suppress(trio.BrokenResourceError):
                await events.send(event)

        await super().spawn_app(heard, config, scope, send)
        return put


class Connection(TCPServer):
    protocol: Protocol  # type: ignore[assignment]  # hypercorn's wrapper adds HTTP/2 to it

    def __init__(
        self, app: AppWrapper, config: HypercornConfig, context: WorkerContext, wire: Wire
    ) -> None:
        super().__init__(app, config, context, LifespanState({"peer": self}), wire)  # type: ignore[arg-type]  # a stream, to hypercorn
        self._wire = wire
        self._hung_up = False
        self._holding = False
        self._held = b""

    async def run(self) -> None:
        """Serve until either side ends it. Raises whatever hypercorn could not deal with."""
        socket = self._wire.socket
        async with _Tasks() as self._task_group:
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
            self.protocol.can_read = ReadingOn(self.protocol, self._wire)
            await self.idle_task.restart(self._task_group, self._idle_timeout)
            await self._read_data()
            self._hung_up = True
            await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._write(event.data)
            return
        # An answer's last message tells its handler that the client is done with it, and so
        # cancels it right here: the idle timer has to be started all the same.
        with trio.CancelScope(shield=isinstance(event, Updated)):
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        """In order, and not cancelled half-way. Mostly the kernel takes all at once: then this
        neither waits nor takes the lock."""
        if self._held:
            data, self._held = self._held + data, b""
        if self._holding:
            self._holding, self._held = False, data
            return
        try:
            if data and not self.send_lock.locked():
                data = self._wire.write(data)
            if data:
                with trio.CancelScope(shield=True):
                    async with self.send_lock:  # acquired before anyone else can run, if it is free
                        await self._wire.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.protocol.handle(Closed())

    async def _close(self) -> None:
        if self._held:
            with suppress(trio.BrokenResourceError):
                self._wire.write(self._held)
        self._wire.shut()

    async def _idle_timeout(self) -> None:
        if self._hung_up:
            return
        if self.protocol.keep_alive_requests:
            await super()._idle_timeout()
            return
        # Nobody has asked yet: a drain has an answer for who is about to.
        await trio.sleep(self.config.keep_alive_timeout)
        await self._initiate_server_close()

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        stream = self.protocol.stream
        if isinstance(stream, Stream):
            stream.told = told

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Beside hypercorn, in one go."""
        stream = self.protocol.stream
        if isinstance(stream, Stream) and stream.open:
            await self._write(text_frames(frames))

    @property
    def chunked(self) -> bool:
        return self.protocol.chunked

    async def send_chunk(self, content: bytes) -> None:
        """Beside hypercorn, whose own way for a part of a body is five calls and a lock long."""
        if self.protocol.stream is not None:
            await self._write(b"%x\r\n%b\r\n" % (len(content), content))

    def hold(self) -> None:
        self._holding = True
