"""The upstream through a proxy: where a send goes, its failures, and which clients are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import trio
from trio.testing import MockClock

from proxy.upstream.httpx_client import ProxiedUpstream
from proxy.upstream.interface import Failure, UpstreamRequest

URL = "http://elsewhere/v2"
Handler = Callable[[httpx.Request], httpx.Response]


class Clients:
    """Make httpx clients that answer by themselves, and count them."""

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


class Stuck(Body):
    """Takes long to close."""

    async def aclose(self) -> None:
        await trio.sleep(1000)


def request(query: bytes = b"") -> UpstreamRequest:
    return UpstreamRequest(base_url=URL + "/", headers=[], query=query, body=b"{}")


def good(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, stream=Body(str(request.url).encode()))


async def send(upstream: ProxiedUpstream, asked: UpstreamRequest) -> bytes | Failure:
    async with upstream.open(asked) as reply:
        return reply if isinstance(reply, Failure) else await reply.read()


async def test_a_send_goes_below_its_base_url() -> None:
    upstream = ProxiedUpstream(Clients(good).make)

    assert await send(upstream, request()) == URL.encode() + b"/responses"
    assert await send(upstream, request(query=b"a=1&b")) == URL.encode() + b"/responses?a=1&b"
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
async def test_a_send_without_a_reply_is_a_failure_of_its_kind(
    error: httpx.HTTPError, status: int, code: str, retriable: bool
) -> None:
    def fails(request: httpx.Request) -> httpx.Response:
        raise error

    upstream = ProxiedUpstream(Clients(fails).make)
    failure = await send(upstream, request())

    assert isinstance(failure, Failure)
    assert (failure.status, failure.code, failure.retriable) == (status, code, retriable)
    assert (str(error) or type(error).__name__) in failure.message
    await upstream.aclose()


async def test_a_client_is_shared_by_sends_that_follow_each_other_until_it_was_idle_for_long(
    autojump_clock: MockClock,
) -> None:
    clients = Clients(good)
    upstream = ProxiedUpstream(clients.make)
    async with upstream.open(request()), upstream.open(request()):
        assert clients.open == 2
    for still_open in (2, 1):
        await trio.sleep(50)
        await send(upstream, request())
        assert (len(clients.made), clients.open) == (2, still_open)
    await upstream.aclose()

    assert clients.open == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_answer_that_does_not_close_is_left_after_a_second(
    cancelled: bool, autojump_clock: MockClock
) -> None:
    upstream = ProxiedUpstream(Clients(lambda _: httpx.Response(200, stream=Stuck(b"x"))).make)
    with trio.CancelScope() as scope:
        async with upstream.open(request()):
            if cancelled:
                scope.cancel()

    assert trio.current_time() == pytest.approx(1)
    await upstream.aclose()
