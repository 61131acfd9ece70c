"""A proxy of the plainest kind, in process, on which the harness is tried out.

It speaks the part of the wire that a run uses: over WebSocket it keeps one transcript and runs one
turn at a time, and a new create replaces the one that runs.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import trio

from harness.recall.http_line import EventReader
from harness.recall.line import Address, StreamEvent
from harness.wire.client import HOST, CutError, WireClient, open_client, request
from harness.wire.upstream import TERMINALS, Received, open_upstream
from tests.harness.recall.books import PARENT, Books, NoLaneError, NoTurnError
from tests.harness.recall.peer import Peer

REFUSAL_HEADERS = {"retry-after": "2", "x-turnlane-refusal": "lanes_at_capacity"}
REFUSAL = {"error": {"code": "server_busy", "message": "64 lanes are held"}}
BUSY_HEADERS = {"retry-after": "5", "x-turnlane-refusal": "workflow_concurrency_exhausted"}
BUSY = {"error": {"code": "queue_capacity_exceeded", "message": "8 turns are held"}}
SENT_UP = (
    "thread-id",
    "session-id",
    "authorization",
    "x-codex-turn-metadata",
    PARENT,
    "x-openai-subagent",
)
NOT_SENT_UP = ("type", "generate", "previous_response_id")

Tell = Callable[[StreamEvent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TurnRefused:
    """How a turn ended that had no terminal event."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str]


class StandIn:
    def __init__(self, upstream: int, books: Books) -> None:
        self._upstream = upstream
        self.books = books

    async def answer(self, received: Received) -> None:
        if received.method == "GET":
            await received.reply(200, self.books.document())
            return

        async def tell(event: StreamEvent) -> None:
            if not received.begun:
                await received.begin()
            await received.write(event.data + b"\n\n")

        last = await self.turn(received.headers, received.json, tell)
        if isinstance(last, TurnRefused):
            await received.reply(last.status, last.document, last.headers.items())
        elif last is not None:
            await tell(last)
            await received.end()
        else:
            await received.drop()

    async def upgrade(self, received: Received) -> None:
        with self.books.socket():
            await ProxySocket(received, self).run()

    async def turn(
        self, headers: Mapping[str, str], body: Mapping[str, Any], tell: Tell
    ) -> StreamEvent | TurnRefused | None:
        """Tell all events but the last, and return that; the lane is free by then. None: cut."""

        async def tell_on(event: StreamEvent) -> None:
            give_back()
            await tell(event)

        try:
            with self.books.turn(headers) as give_back, self.books.lane(headers["thread-id"]):
                return await self._relay(headers, body, tell_on)
        except NoTurnError:
            return TurnRefused(429 if "sec-websocket-key" in headers else 503, BUSY, BUSY_HEADERS)
        except NoLaneError:
            return TurnRefused(503, REFUSAL, REFUSAL_HEADERS)

    async def _relay(
        self, headers: Mapping[str, str], body: Mapping[str, Any], tell: Tell
    ) -> StreamEvent | TurnRefused | None:
        up = {name: headers[name] for name in SENT_UP if name in headers}
        http = await open_client(HOST, self._upstream)
        async with http.stream:
            await http.send(request("POST", "/v1/responses", up, msgspec.json.encode(body)))
            try:
                head = await http.head()
            except CutError:
                return TurnRefused(502, {"error": {"code": "cut"}}, {"retry-after": "2"})
            if head.status != 200:
                advice = {"retry-after": head.headers.get("retry-after", "2")}
                return TurnRefused(head.status, msgspec.json.decode(await http.body()), advice)
            return await _events(http, tell)


async def _events(http: WireClient, tell: Tell) -> StreamEvent | None:
    reader = EventReader()
    try:
        while data := await http.more():
            for event in reader.feed(data):
                if event.type in TERMINALS:
                    return event
                await tell(event)
    except CutError:
        pass
    return None


class RunningTurn:
    """The turn that runs: what it was asked, what it has said, and how to end it."""

    def __init__(self, frame: Mapping[str, Any], known: list[Any]) -> None:
        self.body = {name: value for name, value in frame.items() if name not in NOT_SENT_UP}
        self.body["input"] = [*known, *frame["input"]]
        self.items: list[Any] = []
        self.scope = trio.CancelScope()
        self.done = trio.Event()

    @property
    def known(self) -> list[Any]:
        return [*self.body["input"], *self.items]


class ProxySocket:
    def __init__(self, received: Received, proxy: StandIn) -> None:
        self._received = received
        self._proxy = proxy
        self._peer = Peer(received.stream)
        self._known: list[Any] = []
        self._running: RunningTurn | None = None

    async def run(self) -> None:
        await self._peer.accept(self._received)
        async with trio.open_nursery() as nursery:
            while (frame := await self._peer.frame()) is not None:
                await self._hear(frame, nursery)
            nursery.cancel_scope.cancel()

    async def _hear(self, frame: dict[str, Any], nursery: trio.Nursery) -> None:
        if frame["type"] == "response.interrupt":
            await self._stop()
            await self._interrupted(frame["response_id"])
        elif frame.get("generate") is False:
            self._known = frame["input"]
            await self._peer.complete("warm", "response.created")
            await self._peer.complete("warm")
        else:
            await self._stop()
            known = self._known if "previous_response_id" in frame else []
            self._running = RunningTurn(frame, known)
            nursery.start_soon(self._turn, self._running)

    async def _turn(self, turn: RunningTurn) -> None:
        async def tell(event: StreamEvent) -> None:
            if event.is_item:
                turn.items.append(event.fields["item"])
            await self._peer.tell(**event.fields)

        metadata = {"x-codex-turn-metadata": turn.body["client_metadata"]["x-codex-turn-metadata"]}
        with turn.scope:
            last = await self._proxy.turn(self._received.headers | metadata, turn.body, tell)
            if isinstance(last, StreamEvent):
                if last.type == "response.completed":
                    self._known = turn.known
                await self._peer.tell(**last.fields)
            elif last is None:
                await self._refuse(502, {"code": "cut"}, {"retry-after": "1"})
            else:
                await self._refuse(last.status, last.document["error"], last.headers)
        turn.done.set()

    async def _stop(self) -> None:
        if self._running is not None:
            self._running.scope.cancel()
            await self._running.done.wait()

    async def _interrupted(self, response_id: str) -> None:
        assert self._running is not None
        self._known = self._running.known
        details = {"id": response_id, "incomplete_details": {"reason": "interrupted"}}
        await self._peer.tell(type="response.incomplete", response=details)

    async def _refuse(self, status: int, error: Any, headers: Mapping[str, str]) -> None:
        await self._peer.tell(type="error", status=status, error=error, headers=dict(headers))


@asynccontextmanager
async def open_stand_in(upstream: int, books: Books) -> AsyncIterator[Address]:
    stand_in = StandIn(upstream, books)
    async with open_upstream(stand_in.answer, stand_in.upgrade) as served:
        yield Address(host=HOST, port=served.port)
