"""Listening: the socket on which clients arrive, bound here or inherited."""

import errno
import socket
from dataclasses import replace
from typing import Final

import trio

from proxy.config.load import Config
from proxy.config.settings import ServerSettings
from proxy.errors import ConfigError, PortTaken

BACKLOG: Final = 1024
"""While one process hands over to the next, connections wait here."""


def listen(server: ServerSettings) -> trio.socket.SocketType:
    """Return a new listening socket. Raise ConfigError if the address cannot be used."""
    plain = socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET)
    try:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.bind((server.host, server.port))
        plain.listen(BACKLOG)
    except OSError as error:
        plain.close()
        raise _blamed(error, server) from error
    return adopt(plain)


def _blamed(error: OSError, server: ServerSettings) -> ConfigError:
    """Blame the port if it is taken or needs privileges, otherwise the host."""
    problem = f"cannot listen on {server.host}:{server.port}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        return PortTaken("server.port", problem)
    on_port = error.errno in {errno.EACCES, errno.EPERM}
    return ConfigError("server.port" if on_port else "server.host", problem)


def adopt(plain: socket.socket) -> trio.socket.SocketType:
    """Return a trio socket for one that listens already."""
    plain.setblocking(False)
    return trio.socket.from_stdlib_socket(plain)


def fits(listening: socket.socket, server: ServerSettings) -> bool:
    """Return whether `listening` has the configured address."""
    host, port = listening.getsockname()[:2]
    if server.port not in {0, port}:
        return False
    try:
        wanted = socket.getaddrinfo(server.host, None, listening.family, socket.SOCK_STREAM)
    except OSError:  # a name, or an address of another family
        return False
    return host in {address[0] for *_, address in wanted}


def moved_to(config: Config, listening: trio.socket.SocketType) -> Config:
    """Return `config` with the address of `listening`: what is allowed depends on the address."""
    host, port = listening.getsockname()[:2]
    return replace(config, server=replace(config.server, host=host, port=port))


def url(listening: trio.socket.SocketType) -> str:
    """Return the base URL of `listening`, without a path."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
