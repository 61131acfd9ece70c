"""The WebSocket side of the stand-in: one transcript, one turn at a time, the last create wins."""

from collections.abc import Mapping
from typing import Any, Protocol

import h11
import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, TextMessage
from wsproto.events import Event as SocketEvent
from wsproto.utilities import RemoteProtocolError

from harness.recall.line import Event

READ_BYTES = 65536
NOT_SENT_UP = ("type", "generate", "previous_response_id")


class Turns(Protocol):
    async def turn(self, headers: Mapping[str, str], body: Mapping[str, Any], tell: Any) -> Any: ...


class Running:
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


class Socket:
    def __init__(
        self,
        stream: trio.SocketStream,
        request: h11.Request,
        headers: Mapping[str, str],
        turns: Turns,
    ) -> None:
        self._stream = stream
        self._ws = WSConnection(ConnectionType.SERVER)
        self._ws.initiate_upgrade_connection(list(request.headers), request.target.decode())
        self._headers = headers
        self._turns = turns
        self._text = ""
        self._known: list[Any] = []
        self._running: Running | None = None

    async def run(self) -> None:
        list(self._ws.events())
        await self._send(AcceptConnection())
        async with trio.open_nursery() as nursery:
            try:
                while data := await self._stream.receive_some(READ_BYTES):
                    self._ws.receive_data(bytes(data))
                    for event in self._ws.events():
                        await self._hear(event, nursery)
            except (trio.BrokenResourceError, RemoteProtocolError):
                pass
            nursery.cancel_scope.cancel()

    async def _hear(self, event: SocketEvent, nursery: trio.Nursery) -> None:
        if isinstance(event, Ping):
            await self._send(event.response())
        if not isinstance(event, TextMessage):
            return
        self._text += event.data
        if not event.message_finished:
            return
        frame, self._text = msgspec.json.decode(self._text), ""
        if frame["type"] == "response.interrupt":
            await self._stop()
            await self._interrupted(frame["response_id"])
        elif frame.get("generate") is False:
            self._known = frame["input"]
            await self._tell({"type": "response.created", "response": {"id": "warm"}})
            await self._tell({"type": "response.completed", "response": {"id": "warm"}})
        else:
            await self._stop()
            self._running = Running(frame, self._known if "previous_response_id" in frame else [])
            nursery.start_soon(self._turn, self._running)

    async def _turn(self, turn: Running) -> None:
        async def tell(event: Event) -> None:
            if event.is_item:
                turn.items.append(event.fields["item"])
            await self._tell(event.fields)

        metadata = {"x-codex-turn-metadata": turn.body["client_metadata"]["x-codex-turn-metadata"]}
        with turn.scope:
            last = await self._turns.turn({**self._headers, **metadata}, turn.body, tell)
            if isinstance(last, Event):
                if last.type == "response.completed":
                    self._known = turn.known
                await self._tell(last.fields)
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
        await self._tell({"type": "response.incomplete", "response": details})

    async def _refuse(self, status: int, error: Any, headers: Mapping[str, str]) -> None:
        frame = {"type": "error", "status": status, "error": error, "headers": dict(headers)}
        await self._tell(frame)

    async def _tell(self, frame: Mapping[str, Any]) -> None:
        await self._send(TextMessage(data=msgspec.json.encode(frame).decode()))

    async def _send(self, event: SocketEvent) -> None:
        await self._stream.send_all(self._ws.send(event))
