"""Server: accept connections and serve each in a guarded handler until a drain is over.

Theory of operation
-------------------
trio accepts; each connection runs hypercorn's protocol in its own handler, which catches every
exception, so one connection cannot take the server down.

A drain begins when admission's door closes: new asks are refused with the seconds left, idle
connections close at once and busy ones after their turn, within the seconds of the drain. Accepting
continues meanwhile, so that a new client is told, unless another process accepts by then.
"""

import logging
import socket

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.worker_context import WorkerContext

from proxy.ingress.app import App
from proxy.runtime import Runtime
from proxy.server.connection import Connection
from proxy.server.protocol import ConnectionEnded
from proxy.server.stream import ClientStream, next_stream

logger = logging.getLogger(__name__)

LAST_BYTES_SECONDS = 1.0
"""How long final bytes and Close frames have to leave after the last turn."""
KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_INTERVAL_SECONDS = 5


class Server:
    """Serve the connections of one listening socket."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._app = App(runtime)
        self._context = WorkerContext(None)
        self._hypercorn = _hypercorn_config(runtime)
        self._places = trio.CapacityLimiter(runtime.config.server.connections)
        self._open: set[trio.SocketStream] = set()
        self._closed = trio.lowlevel.ParkingLot()

    async def drain(self) -> None:
        """Wait for the door to close, then return when the drain that begins there is over."""
        await self._runtime.admission.door_closed.wait()
        await self._context.terminated.set()  # hypercorn lets idle connections go
        with trio.move_on_after(self._runtime.admission.drain_seconds_left):
            await self._runtime.admission.wait_idle()
            with trio.move_on_after(LAST_BYTES_SECONDS):
                while self._open:
                    await self._closed.park()
        self.cut()

    def cut(self) -> None:
        """Close every connection at once.

        hypercorn shields its writes: cancelling alone would wait for a client that reads nothing.
        """
        for stream in self._open:
            stream.socket.close()

    async def accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        """Accept into `connections` until cancelled.

        A place is taken first: with none left, new connections wait in the backlog.
        """
        while True:
            place = object()
            await self._places.acquire_on_behalf_of(place)
            stream = await next_stream(listener)
            self._open.add(stream)
            connections.start_soon(self._connection, stream, place)

    async def _connection(self, stream: trio.SocketStream, place: object) -> None:
        client = self._runtime.config.client
        wire = ClientStream(stream, client.stall_seconds)
        try:
            await self._converse(wire)
            await wire.linger(client.discard_seconds)
        finally:
            stream.socket.close()
            self._places.release_on_behalf_of(place)
            self._open.discard(stream)
            self._closed.unpark_all()

    async def _converse(self, wire: ClientStream) -> None:
        """Serve one connection; let nothing but cancellation out, and log what is not ordinary."""
        try:
            _tune(wire.socket, self._runtime.config.client.stall_seconds)
            await Connection(self._app, self._hypercorn, self._context, wire).run()
        except* Exception as error:
            if not _is_ordinary(error):
                logger.exception("a connection failed", exc_info=error)


def _hypercorn_config(runtime: Runtime) -> HypercornConfig:
    client = runtime.config.client
    config = HypercornConfig()
    config.h11_max_incomplete_size = client.header_bytes
    config.websocket_max_message_size = client.message_bytes
    config.websocket_ping_interval = client.ping_seconds
    config.keep_alive_timeout = runtime.config.server.keep_alive_seconds
    config.keep_alive_max_requests = 2**62
    config.include_server_header = False
    config.errorlog = logging.getLogger(f"{__name__}.hypercorn")
    return config


def _tune(sock: trio.socket.SocketType, stall_seconds: float) -> None:
    """Detect dead peers by keep-alive probes and, on Linux, a time limit for unacked bytes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_SECONDS,
        "TCP_USER_TIMEOUT": int(stall_seconds * 1000),
    }
    for name in wanted.keys() & vars(socket).keys():
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), wanted[name])


def _is_ordinary(error: BaseException) -> bool:
    """Return whether the peer merely left, or was told to leave."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_ordinary(inner) for inner in error.exceptions)
    ordinary = (ConnectionEnded, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
    return isinstance(error, ordinary)
