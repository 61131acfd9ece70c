"""The upstream through a proxy: where a send goes, its failures, and which clients are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import trio
from trio.testing import MockClock

from proxy.upstream.httpx_client import ProxiedUpstream
from proxy.upstream.interface import Failure, UpstreamRequest

Handler = Callable[[httpx.Request], httpx.Response]


class Clients:
    """Makes httpx clients that answer by themselves, and counts them."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.made: list[httpx.AsyncClient] = []

    def make(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._handler))
        self.made.append(client)
        return client

    @property
    def open(self) -> int:
        return sum(not client.is_closed for client in self.made)


class Body(httpx.AsyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await trio.lowlevel.checkpoint()
        yield self._content


def request(*headers: tuple[bytes, bytes], query: bytes = b"") -> UpstreamRequest:
    return UpstreamRequest(headers=headers, query=query, body=b"{}")


def good(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, stream=Body(str(request.url).encode()))


async def send(upstream: ProxiedUpstream, asked: UpstreamRequest) -> bytes | Failure:
    async with upstream.open(asked) as reply:
        return reply if isinstance(reply, Failure) else await reply.read()


@pytest.mark.parametrize(
    ("url", "headers", "goes_to"),
    [
        (None, [], b"https://api.openai.com/v1/responses"),
        (
            None,
            [(b"chatgpt-account-id", b"a")],
            b"https://chatgpt.com/backend-api/codex/responses",
        ),
        ("http://elsewhere/v2/", [(b"chatgpt-account-id", b"a")], b"http://elsewhere/v2/responses"),
    ],
)
async def test_a_send_goes_where_the_clients_login_belongs_unless_configured(
    url: str | None, headers: list[tuple[bytes, bytes]], goes_to: bytes
) -> None:
    upstream = ProxiedUpstream(Clients(good).make, url)

    assert await send(upstream, request(*headers)) == goes_to
    assert await send(upstream, request(*headers, query=b"a=1&b")) == goes_to + b"?a=1&b"
    await upstream.aclose()


@pytest.mark.parametrize(
    ("error", "status", "code", "retriable"),
    [
        (httpx.ConnectTimeout(""), 504, "upstream_timeout", True),
        (httpx.ConnectError("refused"), 502, "upstream_unreachable", True),
        (httpx.RemoteProtocolError("no HTTP"), 502, "upstream_unreachable", True),
        (httpx.LocalProtocolError("no header"), 502, "upstream_unusable", False),
        (httpx.UnsupportedProtocol("no scheme"), 502, "upstream_unusable", False),
    ],
    ids=repr,
)
async def test_a_send_that_brings_no_reply_is_a_failure_of_its_kind(
    error: httpx.HTTPError, status: int, code: str, retriable: bool
) -> None:
    def fails(request: httpx.Request) -> httpx.Response:
        raise error

    upstream = ProxiedUpstream(Clients(fails).make, "http://elsewhere")
    failure = await send(upstream, request())

    assert isinstance(failure, Failure)
    assert (failure.status, failure.code, failure.retriable) == (status, code, retriable)
    assert (str(error) or type(error).__name__) in failure.message
    await upstream.aclose()


async def test_sends_that_follow_each_other_share_a_client_and_others_do_not(
    autojump_clock: MockClock,
) -> None:
    clients = Clients(good)
    upstream = ProxiedUpstream(clients.make, "http://elsewhere")
    await send(upstream, request())
    await send(upstream, request())
    assert len(clients.made) == 1
    async with upstream.open(request()), upstream.open(request()):
        assert len(clients.made) == 2
    await upstream.aclose()

    assert clients.open == 0


async def test_what_stands_idle_for_long_is_closed_at_the_next_send(
    autojump_clock: MockClock,
) -> None:
    clients = Clients(good)
    upstream = ProxiedUpstream(clients.make, "http://elsewhere")
    async with upstream.open(request()), upstream.open(request()):
        assert clients.open == 2
    await trio.sleep(50)
    await send(upstream, request())
    assert clients.open == 2
    await trio.sleep(50)
    await send(upstream, request())
    assert (len(clients.made), clients.open) == (2, 1)
    await upstream.aclose()

    assert clients.open == 0
