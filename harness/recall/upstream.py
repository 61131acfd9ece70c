"""The scripted upstream: an HTTP/1.1 server that plays the plan and remembers what it served."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

import h11
import trio

from harness.recall.acts import Answer, Drop, HoldTurn, HoldWave, Send, acts
from harness.recall.audit import Arrival, read_request
from harness.recall.family import At
from harness.recall.plan import Plan
from harness.recall.stage import Stage
from harness.recall.wire import Headers

HOST = "127.0.0.1"
READ_BYTES = 65536
BACKLOG = 256
"""More than there are sessions: a wave connects at once."""
_NOT_FOUND = Answer(status=404, body=b'{"error":{"message":"not scripted"}}')
_MODELS = Answer(status=200, body=b'{"models":[]}')


class Played(Enum):
    """How one request ended for the upstream."""

    SERVED = auto()
    DROPPED = auto()
    """The script closed the connection."""
    CUT = auto()
    """The peer did."""


@dataclass(slots=True, kw_only=True, eq=False)
class Memory:
    """What the upstream was asked and how that ended, by the tag of each exchange."""

    sends: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, arrival: Arrival) -> None:
        self.sends[arrival.exchange.tag] += 1
        where = f"{arrival.session.name} {arrival.exchange.tag.partition('/')[2]}"
        self.problems += [f"{where}: {problem}" for problem in arrival.problems]


class Upstream:
    """Serves any number of connections; knows each session by the headers the proxy passes on."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.memory = Memory()
        self.stage = stage
        self._plan = plan
        self._sessions = plan.by_thread()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one request after another."""
        http = _Connection(stream)
        async with stream:
            try:
                while (request := await http.next_request()) is not None:
                    if await self._answer(http, *request) is not Played.SERVED:
                        return
                    if not http.next_cycle():
                        return
            except (trio.BrokenResourceError, h11.RemoteProtocolError):
                return  # the peer went away in the middle of a message

    async def _answer(self, http: "_Connection", request: h11.Request, body: bytes) -> Played:
        path = request.target.partition(b"?")[0]
        if request.method == b"GET" and path == b"/v1/models":
            await http.answer(_MODELS)
            return Played.SERVED
        headers = {name.decode(): value.decode() for name, value in request.headers}
        arrival = read_request(self._sessions, headers, body)
        if (request.method, path) != (b"POST", b"/v1/responses"):
            arrival = f"unexpected {request.method.decode()} {path.decode()}"
        if isinstance(arrival, str):
            self.memory.problems.append(arrival)
            await http.answer(_NOT_FOUND)
            return Played.SERVED
        self.memory.note(arrival)
        played = await self._play(http, arrival)
        if played is Played.CUT:
            self.memory.cuts[arrival.exchange.tag] += 1
        return played

    async def _play(self, http: "_Connection", arrival: Arrival) -> Played:
        """Perform the script, but no longer than the peer is there."""
        played = Played.CUT
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http.cancel_when_cut, nursery.cancel_scope)
            with suppress(trio.BrokenResourceError):  # written to a peer that went away: cut
                played = await self._perform(http, arrival)
            nursery.cancel_scope.cancel()
        if played is Played.SERVED:
            await http.end()
        return played

    async def _perform(self, http: "_Connection", arrival: Arrival) -> Played:
        for act in acts(self._plan, arrival.session, arrival.exchange):
            match act:
                case Send(data):
                    await http.stream(data)
                case HoldWave(wave):
                    await self.stage.wait_opened(wave, arrival.session.thread_id)
                case HoldTurn():
                    await self.stage.family.pause(arrival.session.thread_id, At.STANDING)
                case Answer():
                    await http.answer(act)
                    return Played.SERVED
                case Drop():
                    return Played.DROPPED
                case _:
                    await trio.sleep_forever()
        return Played.SERVED


class _Connection:
    """h11 over a stream, for a server whose peer may go away at any moment."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=READ_BYTES)

    async def next_request(self) -> tuple[h11.Request, bytes] | None:
        request = await self._next_event()
        if not isinstance(request, h11.Request):
            return None
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
        return request, bytes(body)

    def next_cycle(self) -> bool:
        """Whether another request may follow on this connection."""
        if (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._http.start_next_cycle()
        return True

    async def cancel_when_cut(self, scope: trio.CancelScope) -> None:
        try:
            early = await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            early = b""
        if early:
            self._http.receive_data(early)
        else:
            scope.cancel()

    async def answer(self, answer: Answer) -> None:
        length = ("content-length", str(len(answer.body)))
        await self._head(answer.status, (length, *answer.headers), "application/json")
        await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def stream(self, data: bytes) -> None:
        if self._http.our_state is not h11.SEND_BODY:
            await self._head(200, (), "text/event-stream")
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """End a stream. A peer that has read the terminal event need not wait for this."""
        if self._http.our_state is h11.SEND_BODY:
            await self._send(h11.EndOfMessage())

    async def _head(self, status: int, headers: Headers, content_type: str) -> None:
        fields = [("content-type", content_type), *headers]
        await self._send(h11.Response(status_code=status, headers=fields))

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            await self._stream.send_all(data)

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(READ_BYTES))
        return event


@asynccontextmanager
async def open_upstream(
    plan: Plan, stage: Stage, port: int = 0
) -> AsyncIterator[tuple[Upstream, int]]:
    """The upstream and the port where it listens, until the block ends.

    OSError: it cannot listen there.
    """
    upstream = Upstream(plan, stage)
    listeners = await trio.open_tcp_listeners(port, host=HOST, backlog=BACKLOG)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, upstream.serve, listeners)
        yield upstream, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()
