"""WsSocket: wsproto over a stream, for a client that reads only when somebody asks."""

from collections import deque
from collections.abc import Mapping
from typing import cast

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate
from wsproto.utilities import RemoteProtocolError

from harness.recall.client import CutError
from harness.recall.line import Refused, read_object, refusal
from harness.recall.wire import Headers

READ_BYTES = 65536


class WsSocket:
    """CutError is raised by whatever finds the connection gone."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._events = deque[Event]()

    async def open(self, authority: str, target: str, headers: Headers) -> Refused | None:
        """Shake hands; a Refused when the server answers with a plain HTTP response."""
        fields = [(name.encode(), value.encode()) for name, value in headers]
        await self._send(
            Request(
                host=authority,
                target=target,
                extensions=[PerMessageDeflate()],
                extra_headers=fields,
            )
        )
        event = await self._next_event()
        return await self._read_refusal(event) if isinstance(event, RejectConnection) else None

    async def send(self, text: str) -> None:
        await self._send(TextMessage(data=text))

    async def receive(self) -> bytes:
        """The next text message, whole."""
        parts: list[str] = []
        while isinstance(event := await self._next_event(), TextMessage):
            parts.append(event.data)
            if event.message_finished:
                return "".join(parts).encode()
        raise CutError("closed")

    async def ping(self) -> list[bytes]:
        """The text messages that come before the answer to a ping."""
        await self._send(Ping(payload=b"recall"))
        found: list[Event] = []
        while not isinstance(event := await self._next_event(), Pong):
            found.append(event)
        return [event.data.encode() for event in found if isinstance(event, TextMessage)]

    async def drop(self) -> None:
        """Close the connection without a Close frame."""
        await trio.aclose_forcefully(self._stream)

    async def _read_refusal(self, rejected: RejectConnection) -> Refused:
        body = bytearray()
        finished = not rejected.has_body
        while not finished:
            part = cast(RejectData, await self._next_event())
            body += part.data
            finished = part.body_finished
        headers: Mapping[str, str] = {
            name.decode().lower(): value.decode() for name, value in rejected.headers
        }
        return refusal(read_object(bytes(body)), rejected.status_code, headers)

    async def _next_event(self) -> Event:
        """The next event that is for the client; pings are answered on the way."""
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, Ping):
                    await self._send(event.response())
                elif isinstance(event, CloseConnection):
                    raise CutError(f"closed {event.code}")
                else:
                    return event
            await self._read_more()

    async def _read_more(self) -> None:
        try:
            data = await self._stream.receive_some(READ_BYTES)
            self._ws.receive_data(bytes(data) or None)
        except (trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError) as error:
            raise CutError(str(error)) from error
        self._events.extend(self._ws.events())

    async def _send(self, event: Event) -> None:
        try:
            await self._stream.send_all(self._ws.send(event))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise CutError(str(error)) from error
