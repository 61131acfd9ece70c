"""Upstream over HTTP with httpx: one physical send, its errors mapped in one place.

httpx's own pool limit and timeouts are off, connecting aside: admission bounds what is in flight,
and the deadlines of a turn are the turn's (`proxy.turns`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import trio

from proxy.config import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.upstream.base import Failure, Headers, UpstreamRequest

OPENAI_URL = "https://api.openai.com/v1"
CHATGPT_URL = "https://chatgpt.com/backend-api/codex"
"""Where a request goes that carries `chatgpt-account-id`, when no URL is configured."""

_IDLE_CONNECTION_SECONDS = 55.0  # load balancers commonly drop an idle connection after 60 s
_CLOSE_SECONDS = 1.0


class HttpReply:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers: Headers = response.headers.raw
        self._chunks = response.aiter_raw()

    async def read(self) -> bytes:
        try:
            return await anext(self._chunks, b"")
        except httpx.HTTPError as error:
            raise UpstreamCut(str(error) or type(error).__name__) from error


class HttpUpstream:
    """Built by `open_http_upstream`."""

    def __init__(self, client: httpx.AsyncClient, url: str | None) -> None:
        self._client = client
        self._url = url.rstrip("/") if url is not None else None

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[HttpReply | Failure]:
        """Send once. Failures before a reply come as values; closing is best effort."""
        built = self._build(request)
        try:
            response = await self._client.send(built, stream=True)
        except httpx.HTTPError as error:
            yield _failure(error)
            return
        try:
            yield HttpReply(response)
        finally:
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await response.aclose()

    def _build(self, request: UpstreamRequest) -> httpx.Request:
        base = self._url
        if base is None:
            chatgpt = any(name == b"chatgpt-account-id" for name, _ in request.headers)
            base = CHATGPT_URL if chatgpt else OPENAI_URL
        url = httpx.URL(base + request.path)
        if request.query:
            url = url.copy_with(query=request.query)
        return httpx.Request(
            request.method, url, headers=list(request.headers), content=request.body
        )


@asynccontextmanager
async def open_http_upstream(settings: UpstreamSettings) -> AsyncIterator[HttpUpstream]:
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=settings.connect_seconds),
        limits=httpx.Limits(
            max_connections=None,
            max_keepalive_connections=None,
            keepalive_expiry=_IDLE_CONNECTION_SECONDS,
        ),
        follow_redirects=False,
    ) as client:
        yield HttpUpstream(client, settings.url)


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
