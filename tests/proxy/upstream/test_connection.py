"""A connection to an upstream, on loopback: plain and with TLS."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from proxy.upstream.connection import UpstreamConnection, connect, trusting
from proxy.upstream.url import Origin


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def client_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def server_side(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


@asynccontextmanager
async def connected(
    authority: trustme.CA | None,
) -> AsyncIterator[tuple[UpstreamConnection, trio.abc.Stream]]:
    """Both ends of a connection."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    accepted: list[trio.abc.Stream] = []

    async def accept() -> None:
        stream: trio.abc.Stream = await listeners[0].accept()
        if authority is not None:
            stream = trio.SSLStream(stream, server_side(authority), server_side=True)
            await stream.do_handshake()
        accepted.append(stream)

    async with listeners[0]:
        trusted = None if authority is None else client_side(authority)
        async with trio.open_nursery() as both:
            both.start_soon(accept)
            link = await connect(Origin(authority is not None, "localhost", port), trusted)
        try:
            yield link, accepted[0]
        finally:
            link.close()
            await trio.aclose_forcefully(accepted[0])


@pytest.fixture(params=["plain", "secure"])
def either(request: pytest.FixtureRequest, authority: trustme.CA) -> trustme.CA | None:
    return authority if request.param == "secure" else None


@pytest.mark.parametrize("body", [b"", b"body", bytes(8 * 2**20)], ids=len)
async def test_what_is_sent_arrives_and_what_is_said_is_read(
    body: bytes, either: trustme.CA | None, nursery: trio.Nursery
) -> None:
    arrived = bytearray()

    async def read(stream: trio.abc.Stream) -> None:
        while len(arrived) < len(b"head" + body):
            arrived.extend(await stream.receive_some())

    async with connected(either) as (link, stream):
        async with trio.open_nursery() as both:
            both.start_soon(read, stream)
            await link.send(b"head", body)
        assert arrived == b"head" + body
        await stream.send_all(b"said")
        assert await link.receive() == b"said"


async def test_a_link_is_quiet_until_something_comes(
    either: trustme.CA | None, nursery: trio.Nursery
) -> None:
    async with connected(either) as (link, stream):
        await stream.send_all(b"said")
        while await link.receive() != b"said":
            pass
        assert link.is_quiet()
        await stream.send_all(b"more")
        await readable(link)
        assert not link.is_quiet()


async def test_a_link_whose_peer_has_gone_is_not_quiet_and_brings_the_end(
    either: trustme.CA | None, nursery: trio.Nursery
) -> None:
    async with connected(either) as (link, stream):
        await trio.aclose_forcefully(stream)
        await readable(link)
        assert not link.is_quiet()
        assert await link.receive() == b""


async def test_a_peer_that_resets_breaks_the_link() -> None:
    async with connected(None) as (link, stream):
        await link.send(b"unread", b"")
        await trio.aclose_forcefully(stream)  # closing on unread bytes resets

        with pytest.raises(trio.BrokenResourceError):
            await link.receive()


async def test_a_closed_link_cannot_be_written() -> None:
    async with connected(None) as (link, _):
        link.close()
        with pytest.raises(trio.BrokenResourceError):
            await link.send(b"x", b"")


async def test_a_host_that_is_not_vouched_for_is_not_talked_to(authority: trustme.CA) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]

    async def accept() -> None:
        stream = await listeners[0].accept()
        secure = trio.SSLStream(stream, server_side(authority, "elsewhere"), server_side=True)
        with pytest.raises(trio.BrokenResourceError):
            await secure.do_handshake()
        await trio.aclose_forcefully(secure)

    async with listeners[0], trio.open_nursery() as both:
        both.start_soon(accept)
        with pytest.raises(trio.BrokenResourceError):
            await connect(Origin(True, "localhost", port), client_side(authority))


def test_by_default_an_upstream_is_vouched_for_by_name() -> None:
    context = trusting()

    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.cert_store_stats()["x509_ca"] > 0


async def readable(link: UpstreamConnection) -> None:
    while link.is_quiet():  # loopback needs a moment, and nothing else tells of it
        await trio.lowlevel.checkpoint()
