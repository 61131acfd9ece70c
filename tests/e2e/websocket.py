"""A WebSocket client that makes its frames itself, so that it can make wrong ones too."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from tests.e2e.client import Client, Head, request

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """One frame; its mask is all zeros, so that the payload stands in it as it is."""
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


def create(
    thread: str | None = None,
    *,
    session: str | None = None,
    parent: str | None = None,
    previous: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A `response.create`."""
    found: dict[str, Any] = {"type": "response.create", "model": "m", "input": [], **more}
    if thread is not None:
        metadata = {"thread_id": thread, "session_id": session or thread}
        if parent is not None:
            metadata["x-codex-parent-thread-id"] = parent
        found["client_metadata"] = metadata
    if previous is not None:
        found["previous_response_id"] = previous
    return found


@dataclass(frozen=True, slots=True)
class Closed:
    """The Close frame with which the proxy ended; 1006 if there was none."""

    code: int


class Socket:
    """An open WebSocket. Pings of the proxy are not answered."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._buffer = bytearray()
        self._frames: deque[tuple[int, bytes]] = deque()

    async def send(self, document: Any) -> None:
        await self.client.send(frame(TEXT, json.dumps(document).encode()))

    async def raw(self, data: bytes) -> None:
        await self.client.send(data)

    async def event(self) -> Any:
        """The next text frame as JSON, or Closed."""
        while True:
            opcode, payload = await self.frame()
            if opcode == TEXT:
                return json.loads(payload)
            if opcode == CLOSE:
                return Closed(int.from_bytes(payload[:2], "big"))

    async def until(self, kind: str) -> Any:
        """The next event of that type; others before it are passed over."""
        while (event := await self.event())["type"] != kind:
            pass
        return event

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of any kind; a Close frame of 1006 when the connection has ended."""
        while not self._frames:
            try:
                chunk = await self.client.stream.receive_some()
            except trio.BrokenResourceError:
                chunk = b""
            if not chunk:
                return CLOSE, (1006).to_bytes(2, "big")
            self._buffer += chunk
            self._split()
        return self._frames.popleft()

    def _split(self) -> None:
        while (size := _whole(self._buffer)) is not None:
            start, end = size
            self._frames.append((self._buffer[0] & 0x0F, bytes(self._buffer[start:end])))
            del self._buffer[:end]


def _whole(buffer: bytearray) -> tuple[int, int] | None:
    """Where the payload of the first frame begins and ends, once all of it is there."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 0x7F, 2
    if size > 125:
        start = 4 if size == 126 else 10
        if len(buffer) < start:
            return None
        size = int.from_bytes(buffer[2:start], "big")
    return (start, start + size) if len(buffer) >= start + size else None


def handshake(headers: Mapping[str, str] | None = None, target: str = "/v1/responses") -> bytes:
    return request("GET", target, {**HANDSHAKE, **(headers or {})})


async def upgrade(client: Client, headers: Mapping[str, str] | None = None) -> Head:
    """Shake hands; the answer is 101 if the socket is open."""
    await client.send(handshake(headers))
    return await client.head("GET", upgraded=True)


async def open_socket(client: Client, headers: Mapping[str, str] | None = None) -> Socket:
    await client.send(handshake(headers))
    return await opened(client)


async def opened(client: Client) -> Socket:
    """The socket that a handshake has opened."""
    found = bytearray()
    while b"\r\n\r\n" not in found:
        chunk = await client.stream.receive_some()
        assert chunk, bytes(found)
        found += chunk
    head, _, rest = bytes(found).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    socket = Socket(client)
    socket._buffer += rest
    socket._split()
    return socket
