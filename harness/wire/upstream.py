"""A scripted model service over HTTP/1.1 on real sockets, for the harness and the tests alike.

A script is called with each request and answers it as it likes. A hang-up ends the script.
An upstream that speaks WebSocket would branch off in `ScriptedUpstream._answer`, before the watch
for a hang-up begins to read: from there on `Received.stream` is the script's own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import trio

from harness.wire.client import HOST, READ_BYTES, receive

SSE: Final = (("content-type", "text/event-stream"),)
JSON: Final = ("content-type", "application/json")
TERMINALS: Final = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "error"}
)
BACKLOG: Final = 256
"""More than there are sessions in a run: a wave of them connects at once."""
HEAD_BYTES: Final = 2**20


def sse(event: Any) -> bytes:
    """Return one event in the form in which model services stream it."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@dataclass(eq=False)
class Received:
    """One request that reached the upstream, and the means to answer it."""

    number: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    stream: trio.SocketStream = field(repr=False)
    connection: h11.Connection = field(repr=False)
    go: trio.Event = field(default_factory=trio.Event, repr=False)
    cut: trio.Event = field(default_factory=trio.Event, repr=False)
    """The peer has hung up before the end of the answer."""
    over: trio.Event = field(default_factory=trio.Event, repr=False)
    concluded: bool = False
    """The answer has been made to its end: leaving after that is not a hang-up."""

    @property
    def id(self) -> str:
        return f"resp_{self.number}"

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def begun(self) -> bool:
        """True once the head of an answer has been sent."""
        return self.connection.our_state is not h11.SEND_RESPONSE

    async def begin(self, status: int = 200, headers: Iterable[tuple[str, str]] = SSE) -> None:
        await self._send(h11.Response(status_code=status, headers=list(headers)))

    async def write(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def event(self, kind: str, **members: Any) -> None:
        self.concluded = kind in TERMINALS
        await self.write(sse({"type": kind, **members}))

    async def created(self) -> None:
        await self.begin()
        await self.event("response.created", response={"id": self.id, "status": "in_progress"})

    async def completed(self) -> None:
        await self.event("response.completed", response={"id": self.id, "status": "completed"})
        await self.end()

    async def end(self, last: bytes = b"") -> None:
        """Send the last bytes and the end of the body, in one write."""
        self.concluded = True
        await self._send(h11.Data(data=last), h11.EndOfMessage())

    async def reply(
        self, status: int, document: Any, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Send a whole answer; `document` is JSON, or bytes that are sent as they are."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.concluded = True
        fields = dict([JSON, ("content-length", str(len(body))), *headers])
        await self._send(
            h11.Response(status_code=status, headers=list(fields.items())),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )

    async def drop(self) -> None:
        """Close the connection in the middle of what it was doing."""
        self.concluded = True
        await trio.aclose_forcefully(self.stream)

    async def _send(self, *events: h11.Event) -> None:
        await self.stream.send_all(b"".join(self.connection.send(event) or b"" for event in events))


Script = Callable[[Received], Awaitable[None]]


async def at_once(received: Received) -> None:
    """Send a whole answer."""
    await received.created()
    await received.completed()


async def on_go(received: Received) -> None:
    """Send the first event at once, the end when the test says so."""
    await received.created()
    await received.go.wait()
    await received.completed()


class ScriptedUpstream:
    """Serves any number of connections, and remembers every request."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sent: list[Received] = []
        self.remember = True
        """Off, only the last request is kept: a history of thousands would fill the memory."""
        self.count = 0
        self.port = 0
        self._news = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<ScriptedUpstream {self.url} after {self.count} requests>"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    async def wait_sent(self, count: int) -> Received:
        """Wait until that many requests have arrived in all; return the last of them."""
        while len(self.sent) < count:
            await self._news.park()
        return self.sent[count - 1]

    def release(self) -> None:
        """Let everything go on that waits for `go`."""
        for received in self.sent:
            received.go.set()

    async def listen(self, port: int = 0) -> list[trio.SocketListener]:
        listeners = await trio.open_tcp_listeners(port, host=HOST, backlog=BACKLOG)
        self.port = listeners[0].socket.getsockname()[1]
        return listeners

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection, with one request after another."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            async with stream:
                while (received := await self._next(stream, connection)) is not None:
                    await self._answer(received)
                    if (connection.our_state, connection.their_state) != (h11.DONE, h11.DONE):
                        return
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            return

    async def _next(self, stream: trio.SocketStream, connection: h11.Connection) -> Received | None:
        """Read the next request with its body; None once the peer has hung up."""
        head = await _next_event(stream, connection)
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(event := await _next_event(stream, connection), h11.Data):
            body += event.data
        self.count += 1
        return Received(
            number=self.count,
            method=head.method.decode(),
            target=head.target.decode("latin-1"),
            headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
            stream=stream,
            connection=connection,
        )

    async def _answer(self, received: Received) -> None:
        if not self.remember:
            self.sent.clear()
        self.sent.append(received)
        self._news.unpark_all()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, received, nursery.cancel_scope)
                await self._play(received)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer, or the script, has closed the connection
        finally:
            received.over.set()

    async def _play(self, received: Received) -> None:
        """Run the script; what a hang-up interrupts was cut, unless it was at its end."""
        try:
            await self.script(received)
        except (trio.Cancelled, trio.BrokenResourceError):
            if not received.concluded:
                received.cut.set()
            raise


async def _watch(received: Received, scope: trio.CancelScope) -> None:
    """Notice a hang-up; a request that comes early is kept for its turn."""
    while data := await receive(received.stream):
        received.connection.receive_data(data)
    scope.cancel()


async def _next_event(stream: trio.SocketStream, connection: h11.Connection) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some(READ_BYTES))
    return event


async def start_upstream(nursery: trio.Nursery, script: Script) -> ScriptedUpstream:
    """Serve a script until the nursery ends."""
    upstream = ScriptedUpstream(script)
    await nursery.start(trio.serve_listeners, upstream.serve, await upstream.listen())
    return upstream


@asynccontextmanager
async def open_upstream(
    script: Script = at_once, *, port: int = 0
) -> AsyncIterator[ScriptedUpstream]:
    """Serve a script until the block ends. Raises OSError when it cannot listen at `port`."""
    upstream = ScriptedUpstream(script)
    listeners = await upstream.listen(port)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, upstream.serve, listeners)
        yield upstream
        nursery.cancel_scope.cancel()
