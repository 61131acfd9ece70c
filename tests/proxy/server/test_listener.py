"""The listening socket: where it is, why it cannot be bound, and accepting on it."""

from __future__ import annotations

import logging
import socket
from collections import deque
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from proxy.config.load import Config
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError, PortTaken
from proxy.server.listener import (
    adopt,
    fits,
    listen,
    moved_to,
    url,
)
from proxy.server.stream import ACCEPT_AGAIN_SECONDS, next_stream

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        (HOST, None, True),
        (HOST, 0, True),
        ("localhost", None, True),
        (HOST, 9, False),
        ("127.0.0.2", None, False),
        ("0.0.0.0", None, False),
        ("::1", 0, False),
        ("no.such.name.invalid", 0, False),
    ],
)
def test_a_socket_fits_if_it_listens_where_the_configuration_says(
    host: str, port: int | None, expected: bool
) -> None:
    with socket.create_server((HOST, 0)) as listening:
        its_port = listening.getsockname()[1]
        server = ServerSettings(host=host, port=its_port if port is None else port)

        assert fits(listening, server) is expected


async def test_the_address_of_an_inherited_socket_replaces_the_configured_one() -> None:
    with socket.create_server(("0.0.0.0", 0)) as plain:
        port = plain.getsockname()[1]
        with adopt(plain.dup()) as listening:
            config = moved_to(Config(), listening)

            assert (config.server.host, config.server.port) == ("0.0.0.0", port)
            assert url(listening) == f"http://0.0.0.0:{port}"


@pytest.mark.parametrize("host", ["192.0.2.1", "256.0.0.1"])
def test_an_address_that_is_not_of_this_machine_is_blamed_on_the_host(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listen(ServerSettings(host=host, port=0))

    assert caught.value.key == "server.host"


def test_a_taken_port_has_an_error_of_its_own() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"^server\.port: cannot listen on {HOST}:{port}: "):
            listen(ServerSettings(host=HOST, port=port))


# Accepting.


class Listener:
    def __init__(self, *results: OSError | object) -> None:
        self.results = deque(results)

    async def accept(self) -> object:
        await trio.lowlevel.checkpoint()
        result = self.results.popleft()
        if isinstance(result, OSError):
            raise result
        return result


async def test_accepting_waits_while_there_are_no_files_left(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    stream = object()
    listener = Listener(OSError(24, "Too many open files"), OSError(24, "Too many"), stream)
    with caplog.at_level(logging.WARNING, "proxy"):
        accepted = await next_stream(cast(trio.SocketListener, listener))

    assert accepted is stream
    assert trio.current_time() == pytest.approx(2 * ACCEPT_AGAIN_SECONDS)
    assert caplog.messages == ["cannot accept: Too many open files", "cannot accept: Too many"]
