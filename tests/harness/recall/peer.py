"""The server's end of a WebSocket, as a test plays it."""

import socket
import struct
from typing import Any

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, Ping, Request, TextMessage

from harness.wire.client import receive


class Peer:
    """Accepts, and then says and hears what its owner wants."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._ws = WSConnection(ConnectionType.SERVER)
        self._events: list[Event] = []

    async def accept(self) -> None:
        assert isinstance(await self.hear(), Request)
        await self.say(AcceptConnection())

    async def hear(self) -> Event:
        """Return the next event; the end of the connection is a CloseConnection."""
        while not self._events:
            self._ws.receive_data(await receive(self._stream) or None)
            self._events += self._ws.events()
        return self._events.pop(0)

    async def frame(self) -> dict[str, Any] | None:
        """Return the next frame as JSON, with pings answered on the way; None at the end."""
        text = ""
        while True:
            match await self.hear():
                case Ping() as ping:
                    await self.say(ping.response())
                case TextMessage(data=data, message_finished=finished):
                    text += data
                    if finished:
                        frame: dict[str, Any] = msgspec.json.decode(text)
                        return frame
                case _:
                    return None

    async def say(self, event: Event) -> None:
        await self._stream.send_all(self._ws.send(event))

    async def tell(self, **fields: Any) -> None:
        await self.say(TextMessage(data=msgspec.json.encode(fields).decode()))

    async def complete(self, response_id: str, kind: str = "response.completed") -> None:
        await self.tell(type=kind, response={"id": response_id})

    async def close(self) -> None:
        await self._stream.aclose()

    async def reset(self) -> None:
        """Close with RST, which the other end sees at once."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()
