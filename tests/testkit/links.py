"""Fake links to an upstream: each plays what the upstream says, and remembers what it was sent."""

import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from proxy.upstream.url import Origin

Said = bytes | Exception | trio.Event
"""What one read brings: bytes, the end (none), an error; or a gate to wait at first."""


@dataclass(slots=True)
class FakeLink:
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


def link(*said: Said, broken: bool = False) -> FakeLink:
    return FakeLink(deque(said), broken)


class Connecting:
    """Hands out links in order; an error among them is raised."""

    def __init__(self, *links: FakeLink | Exception | float) -> None:
        self._links = deque(links)
        self.origins: list[Origin] = []
        self.trusted: list[ssl.SSLContext | None] = []

    async def __call__(self, origin: Origin, trusted: ssl.SSLContext | None) -> FakeLink:
        await trio.lowlevel.checkpoint()
        self.origins.append(origin)
        self.trusted.append(trusted)
        match self._links.popleft():
            case FakeLink() as link:
                return link
            case Exception() as error:
                raise error
            case seconds:
                await trio.sleep(seconds)
                raise AssertionError("nobody waits for so long")


def whole(body: bytes, *headers: bytes) -> bytes:
    """A response with a length."""
    lines: Sequence[bytes] = (b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers)
    return b"\r\n".join((*lines, b"", body))
