"""The upstream through a proxy that the environment names, over httpx, which knows every kind.

Theory of operation
-------------------
Each send has an httpx client to itself, and with it a connection; the idle ones are a stack, so the
one used last, and most likely alive, is used next. Sharing one client would be less code, but httpx
walks through its whole pool whenever a request starts or ends, once for each idle connection: with
256 of them that takes 50 ms a turn.

httpx's own limits and timeouts are off, except for connecting: admission bounds what is in flight,
and the deadlines of a turn are the turn's (`proxy.turn.run`).
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import trio

from proxy.errors import UpstreamCut
from proxy.headers import Headers
from proxy.upstream.connection import IDLE_SECONDS
from proxy.upstream.environment import tls_context
from proxy.upstream.interface import Failure, UpstreamRequest

_CLOSE_SECONDS = 1.0


class _Whole(httpx.AsyncByteStream):
    """A body in one piece. httpx's own is a generator, left open when the send is cancelled."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    def __aiter__(self) -> "_Whole":
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if body is None:
            raise StopAsyncIteration
        return body


class ProxiedReply:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Headers = response.headers.raw
        self.name = response.url.host
        self._chunks = response.aiter_raw()

    async def read(self) -> bytes:
        try:
            return await anext(self._chunks, b"")
        except httpx.HTTPError as error:
            raise UpstreamCut(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """Close, unwinding every generator that httpx reads through: closing the outer one leaves
        the inner ones open, and a cancelled read does not."""
        with trio.CancelScope() as unwind, suppress(httpx.HTTPError):
            unwind.cancel()
            while await anext(self._chunks, b""):
                ...
        await self._response.aclose()


class ProxiedUpstream:
    """Built by `open_proxied_upstream`. Each request has a `base_url`."""

    def __init__(self, make_client: Callable[[], httpx.AsyncClient]) -> None:
        self._make_client = make_client
        self._idle: deque[tuple[float, httpx.AsyncClient]] = deque()

    def __repr__(self) -> str:
        return f"<ProxiedUpstream {len(self._idle)} idle>"

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[ProxiedReply | Failure]:
        """Send once. A failure before a reply is a value; closing is best effort."""
        built = _build(request)
        await self._close_idle(trio.current_time() - IDLE_SECONDS)
        client = self._idle.pop()[1] if self._idle else self._make_client()
        try:
            try:
                response = await client.send(built, stream=True)
            except httpx.HTTPError as error:
                yield _failure(error)
                return
            reply = ProxiedReply(response)
            try:
                yield reply
            finally:
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await reply.aclose()
        finally:
            self._idle.append((trio.current_time(), client))

    async def aclose(self) -> None:
        await self._close_idle(trio.current_time())

    async def _close_idle(self, since: float) -> None:
        """Close the clients that have been idle since then or longer."""
        while self._idle and self._idle[0][0] <= since:
            client = self._idle.popleft()[1]
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await client.aclose()


@asynccontextmanager
async def open_proxied_upstream(connect_seconds: float) -> AsyncIterator[ProxiedUpstream]:
    tls = tls_context()  # once for all clients

    def make_client() -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=tls,
            timeout=httpx.Timeout(None, connect=connect_seconds),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
            follow_redirects=False,
        )

    upstream = ProxiedUpstream(make_client)
    try:
        yield upstream
    finally:
        await upstream.aclose()


def _build(request: UpstreamRequest) -> httpx.Request:
    assert request.base_url is not None, "HttpUpstream says where a request goes"
    url = httpx.URL(request.base_url.rstrip("/") + request.path)
    if request.query:
        url = url.copy_with(query=request.query)
    built = httpx.Request(request.method, url, headers=list(request.headers), content=request.body)
    built.stream = _Whole(request.body or b"")
    return built


def _failure(error: httpx.HTTPError) -> Failure:
    """A send without a reply. The text says what failed, without any header or body."""
    how = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return Failure(
            status=504, code="upstream_timeout", message=f"no connection: {how}", retriable=True
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Failure(status=502, code="upstream_unusable", message=how, retriable=False)
    return Failure(status=502, code="upstream_unreachable", message=how, retriable=True)
