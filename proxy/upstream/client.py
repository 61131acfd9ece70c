"""Upstream over HTTP/1.1: one physical send, its connection, its errors mapped in one place.

Theory of operation
-------------------
Each send has a connection to itself. The free ones of an origin stand in a stack, so the one that
was used last, and is surely alive, is used next; one that has become readable there is dropped
before use, and what then still fails is a failure like any other: every physical send is charged,
so none is repeated behind the turn's back. A connection goes back only when the last byte of an
answer was read and nothing came behind it; whatever else ends a send closes it.

Admission bounds what is in flight, and the deadlines of a turn are the turn's (`proxy.turn.run`);
only connecting has one of its own. An origin for which the environment names a proxy is served by
httpx (`proxy.upstream.httpx_client`).
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final
from urllib.request import getproxies, proxy_bypass

import trio

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.upstream.connection import ConnectionPool, UpstreamConnection, connect, trusting
from proxy.upstream.http1 import ResponseHead, end_of_head, request_head, response_head
from proxy.upstream.interface import Failure, Upstream, UpstreamReply, UpstreamRequest
from proxy.upstream.url import CHATGPT_URL, OPENAI_URL, Base, Origin, base_of

Connect = Callable[[Origin, ssl.SSLContext | None], Awaitable[UpstreamConnection]]

_UNUSABLE: Final = Failure(
    status=502,
    code="upstream_unusable",
    message="the request has a URL or a header that HTTP cannot carry",
    retriable=False,
)


class HttpReply:
    def __init__(
        self, name: str, link: UpstreamConnection, head: ResponseHead, early: bytes
    ) -> None:
        self.name = name
        self.status = head.status
        self.headers = head.headers
        self._link = link
        self._framing = head.framing
        self._reusable = head.reusable
        self._early = early

    @property
    def reusable(self) -> bool:
        """The connection can carry another request."""
        unread = self._early or not self._framing.done
        return self._reusable and not unread and not self._framing.excess

    async def read(self) -> bytes:
        """All that one read of the socket brought. Raises UpstreamCut."""
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
            return await self._link.receive()
        except trio.BrokenResourceError as error:
            raise UpstreamCut(_words(error)) from error


class HttpUpstream:
    """Built by `open_http_upstream`. `proxied` takes what `is_proxied` says has a proxy."""

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        connect: Connect = connect,
        proxied: Upstream | None = None,
        is_proxied: Callable[[Base], bool] = lambda base: False,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._proxied = proxied
        self._is_proxied = is_proxied
        self._links = ConnectionPool()
        self._bases: dict[str, Base | None] = {}
        """As many as there are accounts with a URL of their own."""
        self._trusted: ssl.SSLContext | None = None

    def open(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamReply | Failure]:
        """Send once. Failures before a reply come as values; closing is best effort."""
        url = request.base_url or self._settings.url or _default(request)
        if url not in self._bases:
            self._bases[url] = base_of(url)
        base = self._bases[url]
        if base is None:
            return nullcontext(_UNUSABLE)
        if self._proxied is not None and self._is_proxied(base):
            return self._proxied.open(request)
        return self._open(base, request)

    def close(self) -> None:
        self._links.close()

    def trusted(self) -> ssl.SSLContext:
        """Made once, and only for https: it takes 40 ms."""
        if self._trusted is None:
            self._trusted = trusting()
        return self._trusted

    @asynccontextmanager
    async def _open(
        self, base: Base, request: UpstreamRequest
    ) -> AsyncIterator[UpstreamReply | Failure]:
        head = _head(base, request)
        if head is None:
            yield _UNUSABLE
            return
        free = self._links.take(base.origin, trio.current_time())
        link = free or await self._connected(base.origin)
        if isinstance(link, Failure):
            yield link
            return
        answer: HttpReply | Failure
        reply: HttpReply | None = None
        try:
            try:
                answer = reply = await _exchange(link, head, request, base.origin.host)
            except (UpstreamCut, trio.BrokenResourceError) as error:
                answer = _unreachable(error)
            yield answer
        finally:
            if reply is not None and reply.reusable:
                self._links.put(base.origin, link, trio.current_time())
            else:
                link.close()

    async def _connected(self, origin: Origin) -> UpstreamConnection | Failure:
        seconds = self._settings.connect_seconds
        with trio.move_on_after(seconds):
            try:
                return await self._connect(origin, self.trusted() if origin.secure else None)
            except (OSError, trio.BrokenResourceError) as error:
                return _unreachable(error)
        return Failure(
            status=504,
            code="upstream_timeout",
            message=f"no connection within {seconds:g} s",
            retriable=True,
        )


@asynccontextmanager
async def open_http_upstream(settings: UpstreamSettings) -> AsyncIterator[HttpUpstream]:
    proxies = getproxies()
    if not proxies.keys() & {"http", "https", "all"}:
        upstream = HttpUpstream(settings)
        if not (settings.url or "").startswith("http://"):
            upstream.trusted()
        try:
            yield upstream
        finally:
            upstream.close()
        return
    from proxy.upstream.httpx_client import open_proxied_upstream

    def is_proxied(base: Base) -> bool:
        named = proxies.get("https" if base.origin.secure else "http") or proxies.get("all")
        return bool(named) and not proxy_bypass(base.host.decode())

    async with open_proxied_upstream(settings) as proxied:
        upstream = HttpUpstream(settings, proxied=proxied, is_proxied=is_proxied)
        try:
            yield upstream
        finally:
            upstream.close()


def _default(request: UpstreamRequest) -> str:
    chatgpt = any(name == b"chatgpt-account-id" for name, _ in request.headers)
    return CHATGPT_URL if chatgpt else OPENAI_URL


def _head(base: Base, request: UpstreamRequest) -> bytes | None:
    target = base.target(request.path, request.query)
    if target is None:
        return None
    length = None if request.body is None and request.method == "GET" else len(request.body or b"")
    return request_head(request.method, target, base.host, request.headers, length)


async def _exchange(
    link: UpstreamConnection, head: bytes, request: UpstreamRequest, name: str
) -> HttpReply:
    """Raises UpstreamCut or trio.BrokenResourceError when no answer comes."""
    whole = True
    try:
        await link.send(head, request.body or b"")
    except trio.BrokenResourceError:
        whole = False  # an upstream may answer without reading all, and its answer counts
    data = b""
    while True:
        while not (end := end_of_head(data)):
            more = await link.receive()
            if not more:
                raise UpstreamCut("the upstream closed the connection without an answer")
            data += more
        found = response_head(data[:end], request.method, whole=whole)
        data = data[end:]
        if found is not None:
            return HttpReply(name, link, found, data)


def _unreachable(error: Exception) -> Failure:
    return Failure(status=502, code="upstream_unreachable", message=_words(error), retriable=True)


def _words(error: Exception) -> str:
    """What failed, never a header or a body."""
    return str(error) or str(error.__cause__ or "") or type(error).__name__
