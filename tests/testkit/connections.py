"""Fake connections to an upstream: each plays what an upstream says and notes what was sent."""

import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from proxy.upstream.url import Origin

Said = bytes | Exception | trio.Event
"""What one read returns: bytes, the end (empty), an error; or a gate to wait at first."""


@dataclass(slots=True)
class FakeConnection:
    said: deque[Said]
    broken: bool = False
    """Writes fail."""
    quiet: bool = True
    sent: list[bytes] = field(default_factory=list)
    closed: bool = False

    async def send(self, head: bytes, body: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise trio.BrokenResourceError("reset")
        self.sent.append(head + body)

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        assert not self.closed
        match self.said.popleft():
            case bytes() as data:
                return data
            case trio.Event() as gate:
                await gate.wait()
                return await self.receive()
            case error:
                raise error

    def is_quiet(self) -> bool:
        return self.quiet

    def close(self) -> None:
        self.closed = True


def connection(*said: Said, broken: bool = False) -> FakeConnection:
    return FakeConnection(deque(said), broken)


class Connecting:
    """Hand out connections in order; raise an error among them, or wait for a number of seconds."""

    def __init__(self, *made: FakeConnection | Exception | float) -> None:
        self._made = deque(made)
        self.origins: list[Origin] = []
        self.tls: list[ssl.SSLContext | None] = []

    async def __call__(self, origin: Origin, tls: ssl.SSLContext | None) -> FakeConnection:
        await trio.lowlevel.checkpoint()
        self.origins.append(origin)
        self.tls.append(tls)
        match self._made.popleft():
            case FakeConnection() as found:
                return found
            case Exception() as error:
                raise error
            case seconds:
                await trio.sleep(seconds)
                raise AssertionError("connecting has a deadline")


def whole(body: bytes, *headers: bytes) -> bytes:
    """A response with a length."""
    lines: Sequence[bytes] = (b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers)
    return b"\r\n".join((*lines, b"", body))
