"""An HTTP/1.1 client that writes its bytes itself, wrong ones too, and reads answers with h11."""

import json
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import h11
import trio

HOST: Final = "127.0.0.1"
READ_BYTES: Final = 65536
CONNECT_SECONDS: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends RST."""


class CutError(Exception):
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer(AnswerHead):
    """A whole answer."""

    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The `error.code` of a refusal."""
        return self.json["error"]["code"]


class WireClient:
    """One TCP connection to a server."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.rest = b""
        """Bytes read beyond the last answer."""
        self._parser = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        """Write all of `data`. Raises trio.BrokenResourceError when the peer has gone."""
        await self.stream.send_all(data)

    async def head(self, method: str = "POST", *, upgraded: bool = False) -> AnswerHead:
        """Read the head of the next answer; `upgraded` accepts a 101. Raises CutError."""
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=READ_BYTES)
        headers = [("host", HOST), *([("upgrade", "websocket")] if upgraded else [])]
        self._parser.send(h11.Request(method=method, target="/", headers=headers))
        self._parser.send(h11.EndOfMessage())
        if self.rest:
            self._parser.receive_data(self.rest)
        event = await self._next()
        while isinstance(event, h11.InformationalResponse) and event.status_code != 101:
            event = await self._next()
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise CutError(event)
        self.rest, _ = self._parser.trailing_data
        return AnswerHead(
            status=event.status_code,
            headers={name.decode(): value.decode() for name, value in event.headers},
        )

    async def more(self) -> bytes:
        """Read the next bytes of the body; none at its end. Raises CutError."""
        event = await self._next()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self.rest, _ = self._parser.trailing_data
        return b""

    async def body(self) -> bytes:
        """Read the rest of the body. Raises CutError."""
        body = bytearray()
        while chunk := await self.more():
            body += chunk
        return bytes(body)

    async def answer(self, method: str = "POST") -> WireAnswer:
        """Read the whole next answer. Raises CutError."""
        head = await self.head(method)
        return WireAnswer(status=head.status, headers=head.headers, body=await self.body())

    async def wait_closed(self) -> bytes:
        """Read what still comes until the server ends the connection."""
        found = bytearray()
        while chunk := await receive(self.stream):
            found += chunk
        return bytes(found)

    async def hang_up(self) -> None:
        await trio.aclose_forcefully(self.stream)

    async def reset(self) -> None:
        """End the connection with RST, whatever was not read or sent."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        await trio.aclose_forcefully(self.stream)

    async def _next(self) -> Any:
        try:
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                self._parser.receive_data(await self.stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            raise CutError(str(error)) from error
        if isinstance(event, h11.ConnectionClosed):
            raise CutError("closed before an answer")
        return event


def request(
    method: str,
    target: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
) -> bytes:
    """Return a request as bytes; `host` and `content-length` are added where they are missing."""
    fields = {"host": HOST, **dict(headers)}
    if body is not None and "transfer-encoding" not in fields:
        fields.setdefault("content-length", str(len(body)))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def open_client(host: str, port: int) -> WireClient:
    """Connect. Raises CutError when no one answers within CONNECT_SECONDS."""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            return WireClient(await trio.open_tcp_stream(host, port))
    except (OSError, trio.TooSlowError) as error:
        raise CutError(str(error)) from error


async def fetch(
    port: int,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    host: str = HOST,
) -> WireAnswer:
    """Send one request over a connection of its own; return the whole answer. Raises CutError."""
    client = await open_client(host, port)
    async with client.stream:
        fields = {"host": f"{host}:{port}", **(headers or {})}
        try:
            await client.send(request(method, target, fields, body))
        except trio.BrokenResourceError as error:
            raise CutError(str(error)) from error
        return await client.answer(method)


async def receive(stream: trio.abc.ReceiveStream) -> bytes:
    """Read some bytes; none at all once the peer has gone, in whatever way."""
    try:
        return bytes(await stream.receive_some(READ_BYTES))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await trio.lowlevel.checkpoint()
        return b""
