"""Listening: whose socket it is, and whether it is where the configuration says."""

from __future__ import annotations

import socket

import pytest

from proxy.config.load import Config
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError, PortTaken
from proxy.server.listener import adopt, fits, listen, moved_to, url

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


async def test_who_serves_on_a_passed_socket_is_judged_by_its_address() -> None:
    with socket.create_server(("0.0.0.0", 0)) as plain:
        port = plain.getsockname()[1]
        with adopt(plain.dup()) as listening:
            config = moved_to(Config(), listening)

            assert (config.server.host, config.server.port) == ("0.0.0.0", port)
            assert url(listening) == f"http://0.0.0.0:{port}"


@pytest.mark.parametrize("host", ["192.0.2.1", "256.0.0.1"])
def test_an_address_that_is_none_here_is_blamed_on_the_host(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listen(ServerSettings(host=host, port=0))

    assert caught.value.key == "server.host"


def test_a_taken_port_is_told_from_other_troubles() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"^server\.port: cannot listen on {HOST}:{port}: "):
            listen(ServerSettings(host=HOST, port=port))
