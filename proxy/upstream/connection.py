"""Connections to upstreams: one open connection, plain or TLS, and the pool of idle ones.

Theory of operation
-------------------
A plain connection is read with one system call, after trio has reported data: there is no call that
only finds nothing, and no buffer of our own. A write is tried at once, and awaited only if the
kernel takes less than everything. TLS goes through trio's SSLStream.

An idle connection must have nothing to say. Bytes that no request asked for make it readable, and
so does the end of the stream; in both cases it is closed instead of being used again.
"""

import os
import select
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import trio

from proxy.upstream.url import Origin

READ_BYTES: Final = 64 * 1024
_JOINED_BYTES: Final = 64 * 1024
"""A body up to this size is copied after its head, so that TLS writes both at once."""


class UpstreamConnection(Protocol):
    """One connection, which carries one exchange at a time."""

    async def send(self, head: bytes, body: bytes) -> None:
        """Raises trio.BrokenResourceError."""
        ...

    async def receive(self) -> bytes:
        """Return what has arrived; empty at the end. Raises trio.BrokenResourceError."""
        ...

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived, not even the end."""
        ...

    def close(self) -> None: ...


class PlainConnection:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket

    async def send(self, head: bytes, body: bytes) -> None:
        left: Sequence[bytes | memoryview] = (head, body) if body else (head,)
        try:
            while left := write_now(self._socket.fileno(), left):
                await trio.lowlevel.wait_writable(self._socket)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def receive(self) -> bytes:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                data = read_now(self._socket.fileno())
                if data is not None:
                    return data
        except OSError as error:
            raise trio.BrokenResourceError from error

    def is_quiet(self) -> bool:
        return _is_quiet(self._socket)

    def close(self) -> None:
        self._socket.close()


def write_now(file: int, parts: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """Write what the kernel takes of `parts` in one system call; return what is left.

    trio's `send_all` takes one buffer, so a body would be copied after its head, or be a second
    write; and it yields to the scheduler even if the kernel takes everything. Raises OSError.
    """
    try:
        sent = os.writev(file, parts)
    except BlockingIOError:  # its buffer is full
        return parts
    left: list[bytes | memoryview] = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left


def read_now(file: int) -> bytes | None:
    """Read what has arrived, up to READ_BYTES; None if there is nothing after all.

    trio's `receive_some` tries to read before it waits, which finds nothing whenever an upstream
    sends an event at a time. Raises OSError.
    """
    try:
        return os.read(file, READ_BYTES)
    except BlockingIOError:  # a socket may be reported readable without cause: select(2), BUGS
        return None


class SecureConnection:
    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream

    async def send(self, head: bytes, body: bytes) -> None:
        if len(body) <= _JOINED_BYTES:
            await self._stream.send_all(head + body)
        else:
            await self._stream.send_all(head)
            await self._stream.send_all(body)

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(READ_BYTES))

    def is_quiet(self) -> bool:
        return _is_quiet(self._stream.transport_stream.socket)

    def close(self) -> None:
        """Close without TLS's close_notify, for which HTTP servers do not wait."""
        self._stream.transport_stream.socket.close()


async def connect(origin: Origin, tls: ssl.SSLContext | None) -> UpstreamConnection:
    """Connect; `tls` is given for a secure origin. Raises OSError or trio.BrokenResourceError."""
    stream = await trio.open_tcp_stream(origin.host, origin.port)
    if tls is None:
        return PlainConnection(stream)
    secure = trio.SSLStream(stream, tls, server_hostname=origin.host, https_compatible=True)
    try:
        await secure.do_handshake()
    except BaseException:
        stream.socket.close()
        raise
    return SecureConnection(secure)


def _is_quiet(socket: trio.socket.SocketType) -> bool:
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return not poll.poll(0)


IDLE_SECONDS: Final = 55.0  # load balancers commonly drop an idle connection after 60 s


class ConnectionPool:
    """The idle connections of each origin in a stack, with the last used one on top."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[tuple[float, UpstreamConnection]]] = {}

    def __repr__(self) -> str:
        idle = ", ".join(f"{origin.host}: {len(idle)}" for origin, idle in self._idle.items())
        return f"<ConnectionPool idle {{{idle}}}>"

    def take(self, origin: Origin, now: float) -> UpstreamConnection | None:
        """Return the last used connection that is still alive, after closing those of any origin
        that were idle for IDLE_SECONDS."""
        self._expire(now - IDLE_SECONDS)
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()[1]
            if connection.is_quiet():
                return connection
            connection.close()
        return None

    def put(self, origin: Origin, connection: UpstreamConnection, now: float) -> None:
        self._idle.setdefault(origin, deque()).append((now, connection))

    def close(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()

    def _expire(self, since: float) -> None:
        for origin in [origin for origin, idle in self._idle.items() if not idle]:
            del self._idle[origin]
        for idle in self._idle.values():
            while idle and idle[0][0] <= since:
                idle.popleft()[1].close()
