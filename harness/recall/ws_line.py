"""A session over one WebSocket, prewarmed, which sends only what is new, as Codex does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import trio

from harness.recall.calls import Item
from harness.recall.line import (
    Address,
    LineClosed,
    LineMessage,
    LineRefused,
    StreamEvent,
    read_object,
    refusal,
)
from harness.recall.plan import ScriptedExchange, SessionPlan
from harness.recall.requests import create_frame, headers, interrupt_frame, prewarm_frame
from harness.wire.client import CutError, WireClient, open_client
from harness.wire.websocket import DEFLATE, WebSocket, socket_of, upgrade


@dataclass(frozen=True, slots=True)
class LastResponse:
    """The last response on this socket, and the number of input items that it covers."""

    response_id: str
    items: int


class WsLine:
    """A response that ends makes the next request an increment, as long as the socket lives."""

    ends_itself = False

    def __init__(self, address: Address, session: SessionPlan) -> None:
        self._address = address
        self._session = session
        self._socket: WebSocket | None = None
        self._warmed = False
        self._known: LastResponse | None = None
        self._running = ""
        self._covered = 0
        self._failed: LineMessage = LineClosed(clean=False)

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
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

    async def receive(self) -> LineMessage:
        if self._socket is None:
            return self._failed
        try:
            data = await self._socket.text()
        except CutError:
            await self.drop()
            return self._failed
        message = _message(data)
        if isinstance(message, StreamEvent):
            self._follow(message)
        return message

    async def interrupt(self) -> bool:
        await self._write(interrupt_frame(self._running), 0)
        return True

    async def leftovers(self) -> Sequence[LineMessage]:
        """Return what the proxy had sent before it answered a ping."""
        if self._socket is None:
            return ()
        try:
            return [_message(data) for data in await self._socket.left_over()]
        except CutError:
            return ()

    async def drop(self) -> None:
        self._known, self._failed = None, LineClosed(clean=False)
        if self._socket is not None:
            await self._socket.client.hang_up()
            self._socket = None

    def _follow(self, event: StreamEvent) -> None:
        self._covered += event.is_item
        match event.type:
            case "response.created":
                self._running = event.response_id
            case "response.completed" | "response.incomplete":
                known = LastResponse(event.response_id, self._covered)
                self._known = known if known.response_id else None

    async def _connect(self) -> LineMessage | None:
        """Open the socket, and prewarm it if this thread is new. Returns what went wrong."""
        try:
            client = await open_client(self._address.host, self._address.port)
        except CutError:
            return LineClosed(clean=False)
        failed = await self._shake_hands(client)
        if self._socket is None:
            await client.hang_up()
        if failed is not None or self._warmed:
            return failed
        self._warmed = True
        frame = prewarm_frame(self._session)
        await self._write(frame, len(frame["input"]))
        return await self._wait_warm()

    async def _shake_hands(self, client: WireClient) -> LineMessage | None:
        fields = (("host", self._address.authority), *headers(self._session, None))
        try:
            head = await upgrade(client, (*fields, *DEFLATE.items()))
            if head.status != HTTPStatus.SWITCHING_PROTOCOLS:
                return refusal(read_object(await client.body()), head.status, head.headers)
        except (CutError, trio.BrokenResourceError):
            return LineClosed(clean=False)
        self._socket = socket_of(client, head)
        return None

    async def _wait_warm(self) -> LineMessage | None:
        while isinstance(message := await self.receive(), StreamEvent):
            if message.type == "response.completed":
                named = self._known is not None
                return None if named else LineRefused(status=None, code="prewarm_without_id")
        return message

    async def _write(self, frame: Mapping[str, Any], covered: int) -> None:
        """Send a frame; `covered` is how many items the proxy knows once it has it."""
        self._covered = covered or self._covered
        try:
            if self._socket is not None:
                await self._socket.send(frame)
        except trio.BrokenResourceError:
            await self.drop()


def _message(data: bytes) -> StreamEvent | LineRefused:
    fields = read_object(data)
    if fields.get("type") != "error":
        return StreamEvent(fields, data)
    status = fields.get("status", fields.get("status_code"))
    told = fields.get("headers")
    headers = told if isinstance(told, dict) else {}
    named = {str(name).lower(): str(value) for name, value in headers.items()}
    return refusal(fields, status if isinstance(status, int) else None, named)
