"""The upstream over HTTP/1.1: one physical send, its connection, and its errors as values.

Theory of operation
-------------------
Each send has a connection to itself. The idle ones of an origin are a stack, so the one used last,
and most likely alive, is used next. A connection that became readable while idle is dropped before
use, and what still fails after that is a failure like any other: every physical send is charged, so
none is repeated without the turn knowing. A connection goes back to the pool only when the last
byte of an answer was read and nothing came after it; every other end of a send closes it.

Admission bounds what is in flight, and the deadlines of a turn are the turn's (`proxy.turn.run`);
only connecting has a deadline of its own. httpx (`proxy.upstream.httpx_client`) serves an origin
for which the environment names a proxy.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Final

import msgspec
import trio

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.headers import find
from proxy.upstream.connection import ConnectionPool, UpstreamConnection, connect
from proxy.upstream.environment import read_proxies, tls_context
from proxy.upstream.http1 import ResponseHead, end_of_head, request_head, response_head
from proxy.upstream.interface import Failure, Upstream, UpstreamReply, UpstreamRequest
from proxy.upstream.url import Base, Origin, base_of, upstream_url

Connect = Callable[[Origin, ssl.SSLContext | None], Awaitable[UpstreamConnection]]

POST_BYTES: Final = 2**20
"""How much of the answer to a `JsonPost` is kept."""
_UNUSABLE: Final = Failure(
    status=502,
    code="upstream_unusable",
    message="the request has a URL or a header that HTTP cannot carry",
    retriable=False,
)


class HttpReply:
    """A reply, and its connection until it was read to the end."""

    def __init__(
        self, name: str, connection: UpstreamConnection, head: ResponseHead, early: bytes
    ) -> None:
        self.name = name
        self.status = head.status
        self.headers = head.headers
        self._connection = connection
        self._framing = head.framing
        self._reusable = head.reusable
        self._early = early

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        unread = self._early or not self._framing.done
        return self._reusable and not unread and not self._framing.excess

    async def read(self) -> bytes:
        """Return all payload of one read of the socket; empty at the end. Raises UpstreamCut."""
        framing = self._framing
        while self._early or not framing.done:
            if framing.error is not None:
                raise UpstreamCut(framing.error)
            data, self._early = self._early, b""
            if not data:
                data = await self._receive()
            if not data:
                framing.eof()
            elif payload := framing.feed(data):
                return payload
        return b""

    async def _receive(self) -> bytes:
        try:
            return await self._connection.receive()
        except trio.BrokenResourceError as error:
            raise UpstreamCut(_words(error)) from error


class HttpUpstream:
    """Built by `open_http_upstream`. `proxied` sends what `has_proxy` is true for."""

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        connect: Connect = connect,
        proxied: Upstream | None = None,
        has_proxy: Callable[[Base], bool] = lambda base: False,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._proxied = proxied
        self._has_proxy = has_proxy
        self._pool = ConnectionPool()
        self._bases: dict[str, Base | None] = {}
        """One for each URL: the providers', the configured one and those of accounts."""
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"<HttpUpstream {self._pool!r}>"

    def open(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamReply | Failure]:
        """Send once. A failure before a reply is a value; closing is best effort."""
        chatgpt = find(request.headers, b"chatgpt-account-id") is not None
        url = upstream_url(request.base_url, self._settings.url, chatgpt=chatgpt)
        if url not in self._bases:
            self._bases[url] = base_of(url)
        base = self._bases[url]
        if base is None:
            return nullcontext(_UNUSABLE)
        if self._proxied is not None and self._has_proxy(base):
            return self._proxied.open(replace(request, base_url=url))
        return self._open(base, request)

    def close(self) -> None:
        self._pool.close()

    def tls(self) -> ssl.SSLContext:
        """The context for every https origin, made once."""
        if self._tls is None:
            self._tls = tls_context()
        return self._tls

    @asynccontextmanager
    async def _open(
        self, base: Base, request: UpstreamRequest
    ) -> AsyncIterator[UpstreamReply | Failure]:
        head = _head(base, request)
        if head is None:
            yield _UNUSABLE
            return
        idle = self._pool.take(base.origin, trio.current_time())
        connection = idle or await self._connected(base.origin)
        if isinstance(connection, Failure):
            yield connection
            return
        answer: HttpReply | Failure
        reply: HttpReply | None = None
        try:
            try:
                answer = reply = await _exchange(connection, head, request, base.origin.host)
            except (UpstreamCut, trio.BrokenResourceError) as error:
                answer = _unreachable(error)
            yield answer
        finally:
            if reply is not None and reply.reusable:
                self._pool.put(base.origin, connection, trio.current_time())
            else:
                connection.close()

    async def _connected(self, origin: Origin) -> UpstreamConnection | Failure:
        seconds = self._settings.connect_seconds
        with trio.move_on_after(seconds):
            try:
                return await self._connect(origin, self.tls() if origin.secure else None)
            except (OSError, trio.BrokenResourceError) as error:
                return _unreachable(error)
        return Failure(
            status=504,
            code="upstream_timeout",
            message=f"no connection within {seconds:g} s",
            retriable=True,
        )


class JsonPost:
    """POST JSON to a URL of its own over an upstream, for the refreshes of accounts' tokens. Its
    connection is not kept: there is one an hour."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def __call__(self, url: str, body: Mapping[str, str]) -> tuple[int, bytes]:
        """Return the status and up to POST_BYTES of the body. Raises ConnectionError when no whole
        answer came; its text is a code of ours, never what was sent."""
        base_url, _, query = url.partition("?")
        request = UpstreamRequest(
            base_url=base_url,
            path="",
            query=query.encode(),
            headers=[
                (b"content-type", b"application/json"),
                (b"accept", b"application/json"),
                (b"accept-encoding", b"identity"),
                (b"user-agent", b"turnlane"),
                (b"connection", b"close"),
            ],
            body=msgspec.json.encode(body),
            streamed=False,
        )
        try:
            async with self._upstream.open(request) as reply:
                if isinstance(reply, Failure):
                    raise ConnectionError(reply.code)
                answer = b""
                while len(answer) < POST_BYTES and (chunk := await reply.read()):
                    answer += chunk
                return reply.status, answer[:POST_BYTES]
        except UpstreamCut as error:
            raise ConnectionError("upstream_cut") from error


@asynccontextmanager
async def open_http_upstream(settings: UpstreamSettings) -> AsyncIterator[HttpUpstream]:
    proxy_for = read_proxies()
    if proxy_for is None:
        upstream = HttpUpstream(settings)
        if not (settings.url or "").startswith("http://"):
            upstream.tls()  # now, and not while turns stream
        try:
            yield upstream
        finally:
            upstream.close()
        return
    from proxy.upstream.httpx_client import open_proxied_upstream

    def has_proxy(base: Base) -> bool:
        scheme = "https" if base.origin.secure else "http"
        return proxy_for(scheme, base.host.decode()) is not None

    async with open_proxied_upstream(settings.connect_seconds) as proxied:
        upstream = HttpUpstream(settings, proxied=proxied, has_proxy=has_proxy)
        try:
            yield upstream
        finally:
            upstream.close()


def _head(base: Base, request: UpstreamRequest) -> bytes | None:
    target = base.target(request.path, request.query)
    if target is None:
        return None
    length = None if request.body is None and request.method == "GET" else len(request.body or b"")
    return request_head(request.method, target, base.host, request.headers, length)


async def _exchange(
    connection: UpstreamConnection, head: bytes, request: UpstreamRequest, name: str
) -> HttpReply:
    """Send, and read the head of the answer. Raises UpstreamCut or trio.BrokenResourceError when no
    answer comes."""
    whole = True
    try:
        await connection.send(head, request.body or b"")
    except trio.BrokenResourceError:
        whole = False  # an upstream may answer without reading the rest (RFC 9112 §9.5)
    data = b""
    while True:
        while not (end := end_of_head(data)):
            more = await connection.receive()
            if not more:
                raise UpstreamCut("the upstream closed the connection without an answer")
            data += more
        found = response_head(data[:end], request.method, whole=whole)
        data = data[end:]
        if found is not None:
            return HttpReply(name, connection, found, data)


def _unreachable(error: Exception) -> Failure:
    return Failure(status=502, code="upstream_unreachable", message=_words(error), retriable=True)


def _words(error: Exception) -> str:
    """What failed, without any header or body."""
    return str(error) or str(error.__cause__ or "") or type(error).__name__
