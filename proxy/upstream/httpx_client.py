"""Upstream through a proxy that the environment names, with httpx, which knows all their kinds.

Theory of operation
-------------------
Each send has an httpx client to itself, and with it a connection; the free ones stand in a stack,
so the one that was used last, and is surely alive, is used next. Sharing one client would be less
to write, but httpx looks through its whole pool whenever a request comes or goes, once for each
idle connection: with 256 of them that is 50 ms a turn.

httpx's own limits and timeouts are off, connecting aside: admission bounds what is in flight, and
the deadlines of a turn are the turn's (`proxy.turn.run`).
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import trio

from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.headers import Headers
from proxy.upstream.interface import Failure, UpstreamRequest
from proxy.upstream.url import CHATGPT_URL, OPENAI_URL

_IDLE_CONNECTION_SECONDS = 55.0  # load balancers commonly drop an idle connection after 60 s
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
        """httpx reads through generators that hold one another, and closing the outer one leaves
        the inner ones open. A read that is cancelled unwinds them all."""
        with trio.CancelScope() as unwind, suppress(httpx.HTTPError):
            unwind.cancel()
            while await anext(self._chunks, b""):
                ...
        await self._response.aclose()


class ProxiedUpstream:
    """Built by `open_proxied_upstream`."""

    def __init__(self, make_client: Callable[[], httpx.AsyncClient], url: str | None) -> None:
        self._make_client = make_client
        self._free: deque[tuple[float, httpx.AsyncClient]] = deque()
        self._url = url.rstrip("/") if url is not None else None

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[ProxiedReply | Failure]:
        """Send once. Failures before a reply come as values; closing is best effort."""
        built = self._build(request)
        await self._close_idle(trio.current_time() - _IDLE_CONNECTION_SECONDS)
        client = self._free.pop()[1] if self._free else self._make_client()
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
            self._free.append((trio.current_time(), client))

    async def aclose(self) -> None:
        await self._close_idle(trio.current_time())

    async def _close_idle(self, since: float) -> None:
        """Close what has stood here since then or longer."""
        while self._free and self._free[0][0] <= since:
            client = self._free.popleft()[1]
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await client.aclose()

    def _build(self, request: UpstreamRequest) -> httpx.Request:
        base = request.base_url or self._url
        if base is None:
            chatgpt = any(name == b"chatgpt-account-id" for name, _ in request.headers)
            base = CHATGPT_URL if chatgpt else OPENAI_URL
        url = httpx.URL(base.rstrip("/") + request.path)
        if request.query:
            url = url.copy_with(query=request.query)
        built = httpx.Request(
            request.method, url, headers=list(request.headers), content=request.body
        )
        built.stream = _Whole(request.body or b"")
        return built


@asynccontextmanager
async def open_proxied_upstream(settings: UpstreamSettings) -> AsyncIterator[ProxiedUpstream]:
    trusted = httpx.create_ssl_context()  # 40 ms: once, for all clients

    def make_client() -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=trusted,
            timeout=httpx.Timeout(None, connect=settings.connect_seconds),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_CONNECTION_SECONDS),
            follow_redirects=False,
        )

    upstream = ProxiedUpstream(make_client, settings.url)
    try:
        yield upstream
    finally:
        await upstream.aclose()


def _failure(error: httpx.HTTPError) -> Failure:
    """A send that brought no reply. The text names what failed, never a header or a body."""
    how = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return Failure(
            status=504, code="upstream_timeout", message=f"no connection: {how}", retriable=True
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Failure(status=502, code="upstream_unusable", message=how, retriable=False)
    return Failure(status=502, code="upstream_unreachable", message=how, retriable=True)
