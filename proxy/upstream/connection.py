"""Link: one connection to an upstream, read and written without a layer in between.

Theory of operation
-------------------
A plain connection is read with one system call, after trio has said that there is something: no
call that only finds nothing, and no buffer of our own. A write is tried at once, and waited for
only if the kernel takes less than all. TLS goes through trio's SSLStream.

A connection that stands idle must have nothing to say: bytes nobody asked for, and the end of the
stream, make it readable, and then it is not used again.

Links: the connections that stand free, for each origin in a stack, the last used on top.
"""

import os
import select
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import certifi
import trio

from proxy.upstream.url import Origin

READ_BYTES: Final = 64 * 1024
_JOINED_BYTES: Final = 64 * 1024
"""A body up to here is copied behind its head, so that TLS makes one write of both."""


class UpstreamConnection(Protocol):
    async def send(self, head: bytes, body: bytes) -> None:
        """Raises trio.BrokenResourceError."""
        ...

    async def receive(self) -> bytes:
        """What has arrived; empty at the end. Raises trio.BrokenResourceError."""
        ...

    def is_quiet(self) -> bool:
        """Nothing has arrived, not even the end."""
        ...

    def close(self) -> None: ...


class PlainConnection:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket

    async def send(self, head: bytes, body: bytes) -> None:
        parts: Sequence[bytes | memoryview] = (head, body) if body else (head,)
        try:
            while parts:
                try:
                    sent = os.writev(self._socket.fileno(), parts)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
                else:
                    parts = _rest(parts, sent)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def receive(self) -> bytes:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                try:
                    return os.read(self._socket.fileno(), READ_BYTES)
                except BlockingIOError:  # woken for nothing
                    continue
        except OSError as error:
            raise trio.BrokenResourceError from error

    def is_quiet(self) -> bool:
        return _is_quiet(self._socket)

    def close(self) -> None:
        self._socket.close()


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
        """Without TLS's own good-bye, for which HTTP servers do not wait."""
        self._stream.transport_stream.socket.close()


async def connect(origin: Origin, trusted: ssl.SSLContext | None) -> UpstreamConnection:
    """`trusted` is for a secure origin. Raises OSError or trio.BrokenResourceError."""
    stream = await trio.open_tcp_stream(origin.host, origin.port)
    if trusted is None:
        return PlainConnection(stream)
    secure = trio.SSLStream(stream, trusted, server_hostname=origin.host, https_compatible=True)
    try:
        await secure.do_handshake()
    except BaseException:
        stream.socket.close()
        raise
    return SecureConnection(secure)


def trusting() -> ssl.SSLContext:
    """Trusts whom the environment names, or else certifi's list."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file:
        context = ssl.create_default_context(cafile=file)
    elif folder:
        context = ssl.create_default_context(capath=folder)
    else:
        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _rest(parts: Sequence[bytes | memoryview], sent: int) -> list[memoryview]:
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left


def _is_quiet(socket: trio.socket.SocketType) -> bool:
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return not poll.poll(0)


IDLE_SECONDS: Final = 55.0  # load balancers commonly drop an idle connection after 60 s


class ConnectionPool:
    def __init__(self) -> None:
        self._free: dict[Origin, deque[tuple[float, UpstreamConnection]]] = {}

    def take(self, origin: Origin, now: float) -> UpstreamConnection | None:
        """The last used one that is still alive; what has stood for long is closed."""
        self._expire(now - IDLE_SECONDS)
        free = self._free.get(origin)
        while free:
            link = free.pop()[1]
            if link.is_quiet():
                return link
            link.close()
        return None

    def put(self, origin: Origin, link: UpstreamConnection, now: float) -> None:
        self._free.setdefault(origin, deque()).append((now, link))

    def close(self) -> None:
        for free in self._free.values():
            for _, link in free:
                link.close()
        self._free.clear()

    def _expire(self, since: float) -> None:
        for origin in [origin for origin, free in self._free.items() if not free]:
            del self._free[origin]
        for free in self._free.values():
            while free and free[0][0] <= since:
                free.popleft()[1].close()
