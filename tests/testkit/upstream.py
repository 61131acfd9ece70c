"""A fake Upstream: it replies as scripted, and remembers what it was sent and how that ended."""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from proxy.headers import Headers
from proxy.upstream.interface import Failure, UpstreamReply, UpstreamRequest
from tests.testkit.events import completed, created, delta, item_done

Step = bytes | float | trio.Event | Exception
"""A chunk, a pause in seconds, a gate to wait at, or something to raise (UpstreamCut is a cut)."""

STREAM: Final[Headers] = ((b"content-type", b"text/event-stream; charset=utf-8"),)
JSON: Final[Headers] = ((b"content-type", b"application/json"),)
CLOSING_SECONDS: Final = 3600.0
UNREACHABLE: Final = Failure(
    status=502, code="upstream_unreachable", message="connection refused", retriable=True
)


@dataclass(frozen=True, slots=True)
class Script:
    """One reply: its body step by step. `before` comes before the head; `failure` instead of it.

    `closing` holds up the end of a send, as a connection does that closes slowly.
    """

    body: Sequence[Step] = ()
    status: int = 200
    headers: Headers = STREAM
    before: Sequence[Step] = ()
    failure: Failure | None = None
    closing: trio.Event | None = None


def streaming(*steps: Step) -> Script:
    return Script(steps)


def answer(name: str = "resp_1", text: str = "hello") -> Script:
    """A whole answer, each event in a chunk of its own."""
    return Script((created(name), delta(text), completed(name)))


def saying(name: str, *items: dict[str, Any]) -> Script:
    """A response made of these output items."""
    return Script((created(name), *map(item_done, items), completed(name)))


def rejecting(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> Script:
    return Script((body,), status=status, headers=(*JSON, *headers))


def failing(failure: Failure = UNREACHABLE) -> Script:
    return Script(failure=failure)


@dataclass(slots=True)
class Sent:
    """One physical send, as the upstream saw it."""

    request: UpstreamRequest
    opened_at: float
    closed_at: float | None = None
    exhausted: bool = False
    """The body was read to its end."""

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    @property
    def body(self) -> bytes:
        assert self.request.body is not None
        return self.request.body

    def header(self, name: str) -> list[str]:
        wanted = name.encode()
        return [value.decode() for key, value in self.request.headers if key == wanted]


@dataclass(slots=True)
class _Reply:
    status: int
    headers: Headers
    sent: Sent
    steps: deque[Step]
    name: str = "upstream.test"

    async def read(self) -> bytes:
        chunk = await _play(self.steps)
        self.sent.exhausted = chunk == b""
        return chunk


@dataclass(slots=True)
class FakeUpstream:
    """Replies with the next script each time; out of scripts, it fails the test that forgot one."""

    scripts: deque[Script] = field(default_factory=deque)
    sent: list[Sent] = field(default_factory=list)

    def will(self, *scripts: Script) -> None:
        self.scripts.extend(scripts)

    @property
    def running(self) -> int:
        return sum(1 for sent in self.sent if not sent.closed)

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply | Failure]:
        await trio.lowlevel.checkpoint()
        script = self.scripts.popleft()
        sent = Sent(request, trio.current_time())
        self.sent.append(sent)
        try:
            assert await _play(deque(script.before)) == b"", "no bytes before the head"
            if script.failure is not None:
                yield script.failure
            else:
                yield _Reply(script.status, script.headers, sent, deque(script.body))
        finally:
            if script.closing is not None:
                with trio.move_on_after(CLOSING_SECONDS, shield=True):
                    await script.closing.wait()
            sent.closed_at = trio.current_time()


async def _play(steps: deque[Step]) -> bytes:
    """Up to the next chunk; empty at the end."""
    await trio.lowlevel.checkpoint()
    while steps:
        match steps.popleft():
            case bytes() as chunk:
                return chunk
            case trio.Event() as gate:
                await gate.wait()
            case Exception() as error:
                raise error
            case seconds:
                await trio.sleep(seconds)
    return b""
