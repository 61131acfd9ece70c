"""One HTTP/1.1 request over a connection of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import h11
import trio

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def fetch(
    port: int, method: str, target: str, *, body: bytes = b"", headers: dict[str, str] | None = None
) -> Response:
    """The whole answer; h11.RemoteProtocolError when it is cut."""
    connection = h11.Connection(h11.CLIENT)
    fields = {"host": f"{HOST}:{port}", "content-length": str(len(body)), **(headers or {})}
    request = h11.Request(method=method, target=target, headers=list(fields.items()))
    parts = (request, h11.Data(data=body), h11.EndOfMessage())
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(b"".join(connection.send(part) or b"" for part in parts))
        head: h11.Response | None = None
        content = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                content += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
    assert head is not None
    names = {name.decode(): value.decode() for name, value in head.headers}
    return Response(status=head.status_code, headers=names, body=bytes(content))


async def receive(stream: trio.SocketStream) -> bytes:
    """Some bytes; none at all when the other side has left, in whatever way."""
    try:
        return bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        await trio.lowlevel.checkpoint()
        return b""
