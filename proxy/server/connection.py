"""Connection: one accepted socket, from its first byte to its last, as its requests see it.

Theory of operation
-------------------
hypercorn's TCPServer reads, writes and times idle connections out; `proxy.server.protocol` is what
it reads into. Three endings differ from hypercorn's. Where hypercorn closes the connection, only
our side is shut: closing with unread bytes resets it, and a reset can discard the last answer (see
`ClientStream.linger`). A hang-up also ends the idle timer, which would otherwise keep the
connection's place. Once a handler has returned, its queue is closed, so that no task waits for
room in it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
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

from proxy.ingress.app import App
from proxy.ingress.asgi import Receive, Send
from proxy.ingress.asgi import Scope as RequestScope
from proxy.server.protocol import Protocol, ReadingOn, Stream
from proxy.server.stream import ClientStream, text_frames

READ_BYTES: Final = 64 * 1024

Put = Callable[[ASGIReceiveEvent], Awaitable[None]]


class _Tasks(TaskGroup):
    """Run hypercorn's tasks of one connection, and close a handler's queue when it returns."""

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
    """One client's connection, from `run` to the end of either side."""

    protocol: Protocol  # type: ignore[assignment]  # hypercorn's wrapper adds HTTP/2 to it

    def __init__(
        self, app: App, config: HypercornConfig, context: WorkerContext, wire: ClientStream
    ) -> None:
        wrapped = ASGIWrapper(self._serve)  # type: ignore[arg-type]  # plain mappings here
        super().__init__(wrapped, config, context, LifespanState({}), wire)  # type: ignore[arg-type]  # a stream, to hypercorn
        self._application = app
        self._wire = wire
        self._ending = trio.CancelScope()
        self._idle_since: float | None = trio.current_time()
        self._holding = False
        self._held = b""

    async def run(self) -> None:
        """Serve until either side ends the connection. Raise whatever hypercorn did not handle."""
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
            self._task_group.spawn(self._end_when_idle)
            await self._read_data()
            self._ending.cancel()

    async def _serve(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, send, self)

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._write(event.data)
            return
        if isinstance(event, Updated):
            self._idle_since = trio.current_time() if event.idle else None
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        """Write in order, and never only half of `data` because of a cancellation.

        Usually the kernel takes everything at once, and this neither waits nor takes the lock.
        """
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

    async def _read_data(self) -> None:
        """Read as hypercorn does, but without a timeout per read, which would never expire here."""
        data = b"-"
        while data:
            try:
                data = await self._wire.receive_some(READ_BYTES)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())

    async def _end_when_idle(self) -> None:
        """Close the connection after `keep_alive_timeout` idle seconds, or when a drain begins.

        One timer serves the whole connection: it is checked when it goes off, not reset at every
        request. A drain closes an idle connection here; the protocol closes a busy one.
        """
        seconds = self.config.keep_alive_timeout
        begun = trio.current_time()
        with self._ending:
            while not self.context.terminated.is_set():
                since = self._idle_since
                with trio.move_on_at((trio.current_time() if since is None else since) + seconds):
                    await self.context.terminated.wait()
                since = self._idle_since
                if since is not None and trio.current_time() >= since + seconds:
                    break
            if not self.protocol.keep_alive_requests:  # a drain still answers a first request
                await trio.sleep_until(begun + seconds)
            if self._idle_since is not None:
                with trio.CancelScope(shield=True):
                    await self._initiate_server_close()

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        """Call `told` with the bytes that have arrived of an unfinished message; None stops it."""
        stream = self.protocol.stream
        if isinstance(stream, Stream):
            stream.told = told

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Send text frames in one write, bypassing hypercorn."""
        stream = self.protocol.stream
        if isinstance(stream, Stream) and stream.open:
            await self._write(text_frames(frames))

    @property
    def chunked(self) -> bool:
        """Whether the answer that has begun is sent in chunks."""
        return self.protocol.chunked

    async def send_chunk(self, content: bytes) -> None:
        """Send a part of a body, bypassing hypercorn, which takes five calls and a lock for it."""
        if self.protocol.stream is not None:
            await self._write(b"%x\r\n%b\r\n" % (len(content), content))

    def hold(self) -> None:
        """Keep the next write back, and send it together with the one that follows."""
        self._holding = True
