"""A scripted upstream on loopback that remembers what it was sent, and whether it was cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

HOST = "127.0.0.1"
SSE = [("content-type", "text/event-stream")]


@dataclass(eq=False)
class Sent:
    """One request that reached the upstream, and the means to answer it."""

    number: int
    target: str
    headers: dict[str, str]
    body: bytes
    stream: trio.SocketStream
    connection: h11.Connection
    go: trio.Event = field(default_factory=trio.Event)
    cut: trio.Event = field(default_factory=trio.Event)
    """The proxy has hung up before the end of the answer."""
    over: trio.Event = field(default_factory=trio.Event)

    @property
    def id(self) -> str:
        return f"resp_{self.number}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def begin(self, status: int = 200, headers: list[tuple[str, str]] = SSE) -> None:
        await self._send(h11.Response(status_code=status, headers=headers))

    async def write(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def event(self, kind: str, **members: Any) -> None:
        await self.write(sse({"type": kind, **members}))

    async def created(self) -> None:
        await self.begin()
        await self.event("response.created", response={"id": self.id, "status": "in_progress"})

    async def completed(self) -> None:
        await self.event("response.completed", response={"id": self.id, "status": "completed"})
        await self._send(h11.EndOfMessage())

    async def end(self, last: bytes) -> None:
        """Its last bytes and the end of the body, in one write."""
        parts = (h11.Data(data=last), h11.EndOfMessage())
        await self.stream.send_all(b"".join(self.connection.send(part) or b"" for part in parts))

    async def reply(self, status: int, document: Any, headers: list[tuple[str, str]]) -> None:
        body = json.dumps(document).encode()
        kind = ("content-type", "application/json")
        await self.begin(status, [kind, ("content-length", str(len(body))), *headers])
        await self.write(body)
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        await self.stream.send_all(self.connection.send(event) or b"")


Script = Callable[[Sent], Awaitable[None]]


def sse(document: Any) -> bytes:
    return b"event: x\ndata: " + json.dumps(document).encode() + b"\n\n"


async def at_once(sent: Sent) -> None:
    """A whole answer."""
    await sent.created()
    await sent.completed()


async def on_go(sent: Sent) -> None:
    """The first event at once, the end when the test says so."""
    await sent.created()
    await sent.go.wait()
    await sent.completed()


async def silent(sent: Sent) -> None:
    """Not even a head until the test says so."""
    await sent.go.wait()
    await at_once(sent)


async def endless(sent: Sent) -> None:
    """Events without end, as fast as they are taken."""
    await sent.created()
    while True:
        await sent.event("response.output_text.delta", delta="x" * 4000)


class Upstream:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.sent: list[Sent] = []
        self.remember = True
        """Off, only the last request is kept: a history of thousands would fill the memory."""
        self.count = 0
        self.port = 0
        self._news = trio.lowlevel.ParkingLot()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    async def wait_sent(self, count: int) -> Sent:
        """Until that many requests have arrived in all; brings the last of them."""
        while len(self.sent) < count:
            await self._news.park()
        return self.sent[count - 1]

    def release(self) -> None:
        """Let everything go on that waits for it."""
        for sent in self.sent:
            sent.go.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2**20)
        try:
            async with stream:
                while (head := await _next(stream, connection)) is not None:
                    await self._answer(stream, connection, head)
                    if connection.our_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            return

    async def _answer(
        self, stream: trio.SocketStream, connection: h11.Connection, head: h11.Request
    ) -> None:
        body = bytearray()
        while isinstance(event := await _next(stream, connection), h11.Data):
            body += event.data
        assert isinstance(event, h11.EndOfMessage), event
        self.count += 1
        sent = Sent(
            number=self.count,
            target=head.target.decode(),
            headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
            stream=stream,
            connection=connection,
        )
        if not self.remember:
            self.sent.clear()
        self.sent.append(sent)
        self._news.unpark_all()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, sent, nursery.cancel_scope)
                await self._run(sent)
                nursery.cancel_scope.cancel()
        finally:
            sent.over.set()

    async def _run(self, sent: Sent) -> None:
        try:
            await self.script(sent)
        except trio.BrokenResourceError:
            sent.cut.set()


async def _watch(sent: Sent, scope: trio.CancelScope) -> None:
    """Notice a hang-up. The next request may come while this answer's last write still returns."""
    try:
        data = await sent.stream.receive_some()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        data = b""
    if data:
        sent.connection.receive_data(data)
        return
    sent.cut.set()
    scope.cancel()


async def _next(stream: trio.SocketStream, connection: h11.Connection) -> Any:
    """The next event; None once the proxy has hung up."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some())
    return None if isinstance(event, h11.ConnectionClosed) else event


@asynccontextmanager
async def open_upstream(script: Script = at_once) -> AsyncIterator[Upstream]:
    upstream = Upstream(script)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(trio.serve_tcp, upstream.serve, 0)
        upstream.port = serving[0].socket.getsockname()[1]
        yield upstream
        nursery.cancel_scope.cancel()
