"""Connections to an upstream: plain and TLS ones on loopback, and the pool of idle ones."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from proxy.upstream.connection import (
    IDLE_SECONDS,
    ConnectionPool,
    UpstreamConnection,
    connect,
    read_now,
    write_now,
)
from proxy.upstream.url import Origin
from tests.testkit.connections import connection


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
        tls = None if authority is None else client_side(authority)
        async with trio.open_nursery() as both:
            both.start_soon(accept)
            ours = await connect(Origin(authority is not None, "localhost", port), tls)
        try:
            yield ours, accepted[0]
        finally:
            ours.close()
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

    async with connected(either) as (ours, stream):
        async with trio.open_nursery() as both:
            both.start_soon(read, stream)
            await ours.send(b"head", body)
        assert arrived == b"head" + body
        await stream.send_all(b"said")
        assert await ours.receive() == b"said"


async def test_a_connection_is_quiet_until_something_comes(
    either: trustme.CA | None, nursery: trio.Nursery
) -> None:
    async with connected(either) as (ours, stream):
        await stream.send_all(b"said")
        while await ours.receive() != b"said":
            pass
        assert ours.is_quiet()
        await stream.send_all(b"more")
        await readable(ours)
        assert not ours.is_quiet()


async def test_a_connection_whose_peer_has_gone_is_not_quiet_and_returns_the_end(
    either: trustme.CA | None, nursery: trio.Nursery
) -> None:
    async with connected(either) as (ours, stream):
        await trio.aclose_forcefully(stream)
        await readable(ours)
        assert not ours.is_quiet()
        assert await ours.receive() == b""


async def test_a_peer_that_resets_breaks_the_connection() -> None:
    async with connected(None) as (ours, stream):
        await ours.send(b"unread", b"")
        await trio.aclose_forcefully(stream)  # closing on unread bytes resets

        with pytest.raises(trio.BrokenResourceError):
            await ours.receive()


async def test_a_closed_connection_cannot_be_written() -> None:
    async with connected(None) as (ours, _):
        ours.close()
        with pytest.raises(trio.BrokenResourceError):
            await ours.send(b"x", b"")


async def test_a_host_with_a_certificate_for_another_is_not_talked_to(
    authority: trustme.CA,
) -> None:
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


async def readable(ours: UpstreamConnection) -> None:
    while ours.is_quiet():  # loopback needs a moment, and nothing else tells of it
        await trio.lowlevel.checkpoint()


# System calls that do not wait.


def test_a_write_takes_what_the_kernel_takes_and_returns_the_rest() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        left = write_now(ours.fileno(), [b"head", memoryview(b"body")])
        assert (list(left), theirs.recv(100)) == ([], b"headbody")

        written = bytes(2**24)
        left = write_now(ours.fileno(), [b"head", written])
        assert 0 < len(left[-1]) < len(written)
        assert write_now(ours.fileno(), left) is left  # the kernel's buffer is full


def test_a_read_that_finds_nothing_is_told_from_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert read_now(ours.fileno()) is None
        theirs.send(b"said")
        assert read_now(ours.fileno()) == b"said"
        theirs.close()
        assert read_now(ours.fileno()) == b""


# The pool.


HERE = Origin(False, "here", 80)
THERE = Origin(False, "there", 80)


def test_the_last_used_connection_is_used_next() -> None:
    pool = ConnectionPool()
    first, second = connection(), connection()
    pool.put(HERE, first, 1.0)
    pool.put(HERE, second, 2.0)

    assert pool.take(HERE, 3.0) is second
    assert pool.take(HERE, 3.0) is first
    assert pool.take(HERE, 3.0) is None


def test_a_connection_leads_to_one_origin() -> None:
    pool = ConnectionPool()
    pool.put(HERE, connection(), 1.0)

    assert pool.take(THERE, 1.0) is None
    assert pool.take(Origin(True, "here", 80), 1.0) is None


def test_a_connection_that_became_readable_while_idle_is_not_used_again() -> None:
    pool = ConnectionPool()
    alive, dead = connection(), connection()
    dead.quiet = False
    pool.put(HERE, alive, 1.0)
    pool.put(HERE, dead, 2.0)

    assert pool.take(HERE, 3.0) is alive
    assert (alive.closed, dead.closed) == (False, True)


def test_a_connection_that_is_idle_for_long_is_closed_at_the_next_send_to_anywhere() -> None:
    pool = ConnectionPool()
    old, young = connection(), connection()
    pool.put(HERE, old, 0.0)
    pool.put(HERE, young, 1.0)

    assert pool.take(THERE, IDLE_SECONDS) is None
    assert (old.closed, young.closed) == (True, False)
    assert pool.take(HERE, IDLE_SECONDS) is young


def test_closing_the_pool_closes_every_connection() -> None:
    pool = ConnectionPool()
    both = [connection(), connection()]
    for origin, each in zip((HERE, THERE), both, strict=True):
        pool.put(origin, each, 0.0)
    pool.close()

    assert all(each.closed for each in both)
    assert pool.take(HERE, 0.0) is None
