"""One connection: how its socket is set up, and that only our own faults are logged."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest
import trio
import trio.testing

from proxy.server.protocol import ConnectionEnded
from proxy.server.server import Server
from proxy.server.stream import ClientStream
from tests.testkit.runtime import Bench


class BrokenWire:
    """A stream that cannot even be tuned."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def socket(self) -> object:
        raise self._error


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (OSError("reset"), 0),
        (trio.BrokenResourceError(), 0),
        (ConnectionEnded("told"), 0),
        (ExceptionGroup("", [ConnectionEnded("told"), OSError("reset")]), 0),
        (ExceptionGroup("", [ConnectionEnded("told"), ValueError("a bug")]), 1),
        (ValueError("a bug"), 1),
    ],
    ids=repr,
)
async def test_a_fault_ends_its_connection_alone_and_is_logged_if_it_is_ours(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, error: Exception, lines: int
) -> None:
    await Server(Bench(nursery).runtime)._converse(cast(Any, BrokenWire(error)))

    assert len(caplog.records) == lines


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="keep-alive alone")
async def test_an_accepted_socket_has_the_system_look_for_dead_peers(
    nursery: trio.Nursery,
) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.testing.open_stream_to_socket_listener(listener)
        accepted = await listener.accept()
    await client.aclose()
    async with accepted:
        await Server(Bench(nursery).runtime)._converse(ClientStream(accepted, 30))
        found = [
            accepted.socket.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        ]

        assert accepted.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert found == [30_000, 10, 5]
