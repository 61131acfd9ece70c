"""A client that writes its bytes itself, and reads answers with h11."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h11
import trio

HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)


class Cut(Exception):  # noqa: N818  named by what happened
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Head):
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


class Client:
    """One TCP connection to the proxy."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.rest = b""
        self._parser = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def head(self, method: str = "POST", *, upgraded: bool = False) -> Head:
        """The head of the next answer. Raises Cut."""
        self._parser = h11.Connection(h11.CLIENT)
        headers = [("host", HOST), *([("upgrade", "websocket")] if upgraded else [])]
        self._parser.send(h11.Request(method=method, target="/", headers=headers))
        self._parser.send(h11.EndOfMessage())
        if self.rest:
            self._parser.receive_data(self.rest)
        event = await self._next()
        while isinstance(event, h11.InformationalResponse) and event.status_code == 100:
            event = await self._next()
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise Cut(event)
        return Head(
            status=event.status_code,
            headers={name.decode(): value.decode() for name, value in event.headers},
        )

    async def more(self) -> bytes:
        """The next bytes of the body; none at its end. Raises Cut."""
        event = await self._next()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self.rest, _ = self._parser.trailing_data
        return b""

    async def answer(self, method: str = "POST") -> Answer:
        """The whole next answer. Raises Cut."""
        head = await self.head(method)
        body = bytearray()
        while chunk := await self.more():
            body += chunk
        return Answer(status=head.status, headers=head.headers, body=bytes(body))

    async def wait_closed(self) -> bytes:
        """What still comes until the proxy ends the connection."""
        found = bytearray()
        try:
            while chunk := await self.stream.receive_some():
                found += chunk
        except trio.BrokenResourceError:
            pass
        return bytes(found)

    async def hang_up(self) -> None:
        await self.stream.aclose()

    async def reset(self) -> None:
        """End the connection with RST, whatever was not read or sent."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        await self.stream.aclose()

    async def _next(self) -> Any:
        try:
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                self._parser.receive_data(await self.stream.receive_some())
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            raise Cut(str(error)) from error
        if isinstance(event, h11.ConnectionClosed):
            raise Cut("closed before an answer")
        return event


def request(
    method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> bytes:
    """A request as bytes. A `host` and a `content-length` are added where they are missing."""
    fields = {"host": HOST, **(headers or {})}
    if body is not None and "transfer-encoding" not in fields:
        fields.setdefault("content-length", str(len(body)))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def post(headers: Mapping[str, str] | None = None, body: bytes = b'{"stream":true}') -> bytes:
    return request("POST", "/v1/responses", headers, body)


def named(thread: str, session: str | None = None, parent: str | None = None) -> dict[str, str]:
    """The headers that name a conversation."""
    fields = {"thread-id": thread, "session-id": session or thread}
    return fields if parent is None else {**fields, "x-codex-parent-thread-id": parent}


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
