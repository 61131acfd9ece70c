"""A WebSocket client over an `WireClient`: it can make wrong frames, and reads with wsproto.

It reads only when it is asked to, so that a test can play a client that has stopped reading.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import Frame, FrameProtocol, ParseFailed

from harness.wire.client import READ_BYTES, AnswerHead, CutError, WireClient, request

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
HANDSHAKE: Final = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
DEFLATE: Final = {"sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}
"""The extension that Codex offers."""
_MARK: Final = b"have I read everything?"


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """Return one frame; its mask is all zeros, so the payload is in it unchanged."""
    size = len(payload)
    first = opcode | (0x80 if final else 0) | (reserved << 4)
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes((first, mask | size))
    elif size < 65536:
        head = bytes((first, mask | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, mask | 127)) + size.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


def handshake(
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), target: str = "/v1/responses"
) -> bytes:
    return request("GET", target, {**HANDSHAKE, **dict(headers)})


@dataclass(frozen=True, slots=True)
class Closed:
    """The Close frame with which the server ended; 1005 without a code, 1006 without a frame."""

    code: int


class WebSocket:
    """An open WebSocket."""

    def __init__(self, client: WireClient, extensions: list[Extension] | None = None) -> None:
        self.client = client
        self._protocol = FrameProtocol(client=True, extensions=extensions or [])
        self._messages = deque[tuple[int, bytes]]()
        self._partial = b""
        self._read(client.rest)

    async def send(self, document: Any) -> None:
        await self.raw(frame(TEXT, json.dumps(document).encode()))

    async def raw(self, data: bytes) -> None:
        await self.client.send(data)

    async def frame(self) -> tuple[int, bytes]:
        """Read the next message or control frame; a Close frame of 1006 once the socket is gone."""
        while not self._messages:
            try:
                chunk = await self.client.stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                chunk = b""
            if not chunk:
                return CLOSE, (1006).to_bytes(2, "big")
            self._read(bytes(chunk))
        return self._messages.popleft()

    async def event(self) -> Any:
        """Read the next text message as JSON, or Closed; a ping is not answered."""
        while True:
            opcode, payload = await self.frame()
            if opcode == TEXT:
                return json.loads(payload)
            if opcode == CLOSE:
                return Closed(int.from_bytes(payload[:2], "big"))

    async def until(self, kind: str) -> Any:
        """Read up to the next event of that type."""
        while (event := await self.event())["type"] != kind:
            pass
        return event

    async def text(self) -> bytes:
        """Read the next text message and answer pings on the way.

        Raises CutError for anything else: a binary message, a Close frame, the end.
        """
        while True:
            opcode, payload = await self.frame()
            if opcode == TEXT:
                return payload
            if opcode == PING:
                await self._pong(payload)
            elif opcode != PONG:
                raise CutError(f"closed {int.from_bytes(payload[:2], 'big')}")

    async def left_over(self) -> list[bytes]:
        """Return the text messages that come before the answer to a ping. Raises CutError."""
        found: list[bytes] = []
        await self._write(frame(PING, _MARK))
        while True:
            opcode, payload = await self.frame()
            if (opcode, payload) == (PONG, _MARK):
                return found
            if opcode == CLOSE:
                raise CutError("closed")
            if opcode == PING:
                await self._pong(payload)
            elif opcode == TEXT:
                found.append(payload)

    async def _pong(self, payload: bytes) -> None:
        await self._write(frame(PONG, payload))

    async def _write(self, data: bytes) -> None:
        try:
            await self.raw(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise CutError(str(error)) from error

    def _read(self, data: bytes) -> None:
        self._protocol.receive_bytes(data)
        try:
            for found in self._protocol.received_frames():
                self._take(found)
        except ParseFailed as error:
            self._messages.append((CLOSE, int(error.code).to_bytes(2, "big")))

    def _take(self, found: Frame) -> None:
        payload = found.payload
        if isinstance(payload, tuple):
            code, reason = payload
            self._messages.append((CLOSE, int(code).to_bytes(2, "big") + reason.encode()))
            return
        data = payload.encode() if isinstance(payload, str) else bytes(payload)
        if found.opcode.iscontrol():
            self._messages.append((int(found.opcode), data))
            return
        self._partial += data
        if found.message_finished:
            self._messages.append((int(found.opcode), self._partial))
            self._partial = b""


async def upgrade(
    client: WireClient, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
) -> AnswerHead:
    """Shake hands; the answer is 101 if the socket is open. Raises CutError."""
    await client.send(handshake(headers))
    return await client.head("GET", upgraded=True)


async def open_socket(
    client: WireClient, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
) -> WebSocket:
    await client.send(handshake(headers))
    return await opened(client)


async def opened(client: WireClient) -> WebSocket:
    """Return the socket that a handshake has opened."""
    head = await client.head("GET", upgraded=True)
    assert head.status == 101, head
    return socket_of(client, head)


def socket_of(client: WireClient, head: AnswerHead) -> WebSocket:
    """Return the socket that the 101 `head` opens, with the extensions that it names."""
    return WebSocket(client, extensions_of(head.headers.get("sec-websocket-extensions", "")))


def extensions_of(accepted: str) -> list[Extension]:
    """Return what reads a connection whose server has accepted these extensions (RFC 7692)."""
    if not accepted:
        return []
    deflate = PerMessageDeflate()
    deflate.finalize(accepted)
    return [deflate]
