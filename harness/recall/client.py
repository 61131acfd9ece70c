"""A small HTTP/1.1 client over trio: one connection for one request, as Codex does it."""

from collections.abc import Mapping

import h11
import trio

from harness.recall.wire import Headers

READ_BYTES = 65536
CONNECT_SECONDS = 10.0


class CutError(Exception):
    """The peer went away in the middle of its answer."""


async def open_stream(host: str, port: int) -> trio.SocketStream:
    """A connected stream; CutError when nobody answers."""
    try:
        with trio.fail_after(CONNECT_SECONDS):
            return await trio.open_tcp_stream(host, port)
    except (OSError, trio.TooSlowError) as error:
        raise CutError(str(error)) from error


class HttpExchange:
    """One request and its answer, read as it comes. Whoever opens it closes it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=READ_BYTES)

    async def send(self, method: str, target: str, headers: Headers, body: bytes = b"") -> None:
        length = (("content-length", str(len(body))),) if body else ()
        request = h11.Request(method=method, target=target, headers=[*headers, *length])
        parts = (request, h11.Data(data=body), h11.EndOfMessage())
        data = b"".join(self._http.send(part) or b"" for part in parts)
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError:
            return  # refused before it was read: the answer may be there all the same

    async def read_head(self) -> tuple[int, Mapping[str, str]]:
        while not isinstance(event := await self._next_event(), h11.Response):
            continue  # informational: the answer is still to come
        return event.status_code, {name.decode(): value.decode() for name, value in event.headers}

    async def read(self) -> bytes:
        """The next bytes of the body; b"" once it is complete. CutError when it never will be."""
        event = await self._next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def read_all(self) -> bytes:
        body = bytearray()
        while data := await self.read():
            body += data
        return bytes(body)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            raise CutError(str(error)) from error
        return event


async def get(host: str, port: int, target: str) -> tuple[int, bytes]:
    """Status and body of a GET; CutError when there is no whole answer."""
    async with await open_stream(host, port) as stream:
        http = HttpExchange(stream)
        await http.send("GET", target, (("host", f"{host}:{port}"),))
        status, _headers = await http.read_head()
        return status, await http.read_all()
