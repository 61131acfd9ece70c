"""WsLine: a session over one WebSocket, prewarmed, sending only what is new, as Codex does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.recall.calls import Item
from harness.recall.client import CutError, open_stream
from harness.recall.line import Address, Closed, Event, Message, Refused, read_object, refusal
from harness.recall.plan import Exchange, SessionPlan
from harness.recall.wire import create_frame, headers, interrupt_frame, prewarm_frame
from harness.recall.ws_socket import WsSocket


@dataclass(frozen=True, slots=True)
class Known:
    """What the proxy knows of this socket: the last response, and the input that it covers."""

    response_id: str
    items: int


class WsLine:
    """A response that ends makes the next request an increment, as long as the socket lives."""

    ends_itself = False

    def __init__(self, address: Address, session: SessionPlan) -> None:
        self._address = address
        self._session = session
        self._socket: WsSocket | None = None
        self._warmed = False
        self._known: Known | None = None
        self._running = ""
        self._covered = 0
        self._failed: Message = Closed(clean=False)

    async def send(self, exchange: Exchange, items: Sequence[Item]) -> None:
        if self._socket is None and (failed := await self._connect()) is not None:
            await self.drop()
            self._failed = failed
            return
        if self._known is None:
            frame = create_frame(self._session, exchange, items, None)
        else:
            new = items[self._known.items :]
            frame = create_frame(self._session, exchange, new, self._known.response_id)
        await self._write(frame, len(items))

    async def receive(self) -> Message:
        if self._socket is None:
            return self._failed
        try:
            data = await self._socket.receive()
        except CutError:
            await self.drop()
            return self._failed
        message = _message(data)
        if isinstance(message, Event):
            self._follow(message)
        return message

    async def interrupt(self) -> bool:
        await self._write(interrupt_frame(self._running), 0)
        return True

    async def leftovers(self) -> Sequence[Message]:
        """What the proxy had sent before it answered a ping."""
        if self._socket is None:
            return ()
        try:
            return [_message(data) for data in await self._socket.ping()]
        except CutError:
            return ()

    async def drop(self) -> None:
        self._known, self._failed = None, Closed(clean=False)
        if self._socket is not None:
            await self._socket.drop()
            self._socket = None

    def _follow(self, event: Event) -> None:
        self._covered += event.is_item
        match event.type:
            case "response.created":
                self._running = event.response_id
            case "response.completed" | "response.incomplete":
                known = Known(event.response_id, self._covered)
                self._known = known if known.response_id else None

    async def _connect(self) -> Message | None:
        """Open the socket, and prewarm it if this thread is new. Returns what went wrong."""
        try:
            self._socket = WsSocket(await open_stream(self._address.host, self._address.port))
            fields = headers(self._session, None)
            refused = await self._socket.open(self._address.authority, "/v1/responses", fields)
        except CutError:
            return Closed(clean=False)
        if refused is not None or self._warmed:
            return refused
        self._warmed = True
        frame = prewarm_frame(self._session)
        await self._write(frame, len(frame["input"]))
        return await self._wait_warm()

    async def _wait_warm(self) -> Message | None:
        while isinstance(message := await self.receive(), Event):
            if message.type == "response.completed":
                named = self._known is not None
                return None if named else Refused(status=None, code="prewarm_without_id")
        return message

    async def _write(self, frame: Mapping[str, Any], covered: int) -> None:
        """Send a frame; `covered` is how many items the proxy knows once it has it."""
        self._covered = covered or self._covered
        try:
            if self._socket is not None:
                await self._socket.send(msgspec.json.encode(frame).decode())
        except CutError:
            await self.drop()


def _message(data: bytes) -> Event | Refused:
    fields = read_object(data)
    if fields.get("type") != "error":
        return Event(fields, data)
    status = fields.get("status", fields.get("status_code"))
    told = fields.get("headers")
    headers = told if isinstance(told, dict) else {}
    named = {str(name).lower(): str(value) for name, value in headers.items()}
    return refusal(fields, status if isinstance(status, int) else None, named)
