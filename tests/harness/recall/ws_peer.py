"""The other end of a WebSocket, as a test plays it."""

import socket
import struct
from typing import Any

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, Request, TextMessage


class Peer:
    """The other end: accepts, and then says and hears what the test wants."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._ws = WSConnection(ConnectionType.SERVER)
        self._events: list[Event] = []

    async def accept(self) -> Request:
        request = await self.hear()
        assert isinstance(request, Request)
        await self.say(AcceptConnection())
        return request

    async def hear(self) -> Event:
        while not self._events:
            self._ws.receive_data(bytes(await self._stream.receive_some(65536)))
            self._events += self._ws.events()
        return self._events.pop(0)

    async def frame(self) -> dict[str, Any]:
        text = ""
        while isinstance(event := await self.hear(), TextMessage):
            text += event.data
            if event.message_finished:
                break
        frame: dict[str, Any] = msgspec.json.decode(text)
        return frame

    async def say(self, event: Event) -> None:
        await self._stream.send_all(self._ws.send(event))

    async def tell(self, **fields: Any) -> None:
        await self.say(TextMessage(data=msgspec.json.encode(fields).decode()))

    async def complete(self, response_id: str, kind: str = "response.completed") -> None:
        await self.tell(type=kind, response={"id": response_id})

    async def close(self) -> None:
        await self._stream.aclose()

    async def reset(self) -> None:
        """Close with a reset, which the other end sees at once."""
        assert isinstance(self._stream, trio.SocketStream)
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()
