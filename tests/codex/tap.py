"""A TCP relay between the client and turnlane that reads along, WebSocket frames included.

It changes no byte. Whichever side ends first, the other is closed at once, as the side itself
would have done it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol, Opcode

from harness.wire.client import HOST, receive
from tests.codex.log import Log

READ_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One text message of a WebSocket, as JSON."""

    socket: int
    by_client: bool
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """One TCP connection of the client."""

    number: int
    request_head: str = ""
    response_head: str = ""
    closed: trio.Event = field(default_factory=trio.Event)

    @property
    def is_websocket(self) -> bool:
        return " 101 " in self.response_head.partition("\r\n")[0]

    @property
    def request_line(self) -> str:
        return self.request_head.partition("\r\n")[0]


class Tap:
    def __init__(self, target: int) -> None:
        self.port = 0
        self.links: Log[Link] = Log()
        self.frames: Log[Frame] = Log()
        self._target = target

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def websockets(self) -> list[Link]:
        return [link for link in self.links.entries if link.is_websocket]

    def sent(self, kind: str = "response.create") -> list[dict[str, Any]]:
        """The frames of that type the client sent, on whatever socket."""
        frames = [frame.body for frame in self.frames.entries if frame.by_client]
        return [body for body in frames if body.get("type") == kind]

    def received(self, kind: str) -> list[dict[str, Any]]:
        """The frames of that type the client was sent."""
        frames = [frame.body for frame in self.frames.entries if not frame.by_client]
        return [body for body in frames if body.get("type") == kind]

    async def serve(self, client: trio.SocketStream) -> None:
        link = Link(number=len(self.links) + 1)
        self.links.append(link)
        reader = _Reader(link, self.frames)
        async with client:
            try:
                server = await trio.open_tcp_stream(HOST, self._target)
            except OSError:
                return
            async with server, trio.open_nursery() as nursery:
                ended = nursery.cancel_scope
                nursery.start_soon(_pump, client, server, reader.from_client, ended)
                nursery.start_soon(_pump, server, client, reader.from_server, ended)
        link.closed.set()


async def start_tap(nursery: trio.Nursery, target: int) -> Tap:
    tap = Tap(target)
    listen = partial(trio.serve_tcp, tap.serve, 0, host=HOST)
    listeners: list[trio.SocketListener] = await nursery.start(listen)
    tap.port = listeners[0].socket.getsockname()[1]
    return tap


async def _pump(
    source: trio.SocketStream,
    sink: trio.SocketStream,
    reader: Callable[[bytes], None],
    ended: trio.CancelScope,
) -> None:
    while data := await receive(source):
        reader(data)
        try:
            await sink.send_all(data)
        except trio.BrokenResourceError:
            break
    ended.cancel()


class _Reader:
    """Makes heads and frames of the bytes of one link."""

    def __init__(self, link: Link, frames: Log[Frame]) -> None:
        self._link = link
        self._frames = frames
        self._client_bytes = b""
        self._server_bytes = b""
        self._protocols: dict[bool, FrameProtocol] = {}
        self._partial: dict[bool, str] = {True: "", False: ""}

    def from_client(self, data: bytes) -> None:
        if self._protocols:
            self._decode(data, by_client=True)
            return
        self._client_bytes += data
        if not self._link.request_head and b"\r\n\r\n" in self._client_bytes:
            head, _, self._client_bytes = self._client_bytes.partition(b"\r\n\r\n")
            self._link.request_head = head.decode()

    def from_server(self, data: bytes) -> None:
        if self._protocols:
            self._decode(data, by_client=False)
            return
        if self._link.response_head:
            return
        self._server_bytes += data
        head, complete, rest = self._server_bytes.partition(b"\r\n\r\n")
        if not complete:
            return
        self._link.response_head = head.decode()
        if self._link.is_websocket:
            self._protocols = {
                True: FrameProtocol(client=False, extensions=_extensions(head.decode())),
                False: FrameProtocol(client=True, extensions=_extensions(head.decode())),
            }
            self._decode(self._client_bytes, by_client=True)
            self._decode(rest, by_client=False)

    def _decode(self, data: bytes, *, by_client: bool) -> None:
        for text in self._texts(data, by_client=by_client):
            frame = Frame(socket=self._link.number, by_client=by_client, body=json.loads(text))
            self._frames.append(frame)

    def _texts(self, data: bytes, *, by_client: bool) -> Iterator[str]:
        protocol = self._protocols[by_client]
        protocol.receive_bytes(data)
        for frame in protocol.received_frames():
            if frame.opcode is Opcode.TEXT:
                self._partial[by_client] += str(frame.payload)
                if frame.message_finished:
                    yield self._partial[by_client]
                    self._partial[by_client] = ""


def _extensions(response_head: str) -> list[Extension]:
    """What the server agreed to; both directions are decoded by it."""
    for line in response_head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "sec-websocket-extensions":
            deflate = PerMessageDeflate()
            deflate.finalize(value.strip())
            return [deflate]
    return []
