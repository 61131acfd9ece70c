"""Launch: what a service manager passes to a process that it starts, and how it is notified.

systemd passes listening sockets as descriptors from 3 on and counts them in LISTEN_FDS, which is
meant for the process LISTEN_PID (sd_listen_fds(3)); it waits for a datagram on NOTIFY_SOCKET
(sd_notify(3)).
"""

import os
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from proxy.errors import ConfigError

FIRST_DESCRIPTOR: Final = 3
MOST_DESCRIPTORS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How this process was started."""

    listening: socket.socket | None = None
    """The service manager's socket, which stays open whatever becomes of this process."""
    notify: str | None = None
    take_over: bool = False
    """The running turnlane shall hand over, even if it is not draining."""

    def tell(self, state: str) -> None:
        """Notify the service manager of `state`, if there is one that listens."""
        if self.notify is None:
            return
        abstract = self.notify.startswith("@")
        address = f"\0{self.notify[1:]}" if abstract else self.notify
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, suppress(OSError):
            manager.setblocking(False)
            manager.sendto(state.encode(), address)


def read_launch(
    environment: MutableMapping[str, str],
    pid: int,
    *,
    take_over: bool = False,
    first: int = FIRST_DESCRIPTOR,
) -> Launch:
    """Read the variables and remove them from `environment`, which no child may take for its own.

    Raises ConfigError when sockets were passed and turnlane can serve on none of them.
    """
    count, owner = environment.pop("LISTEN_FDS", ""), environment.pop("LISTEN_PID", "")
    environment.pop("LISTEN_FDNAMES", None)
    notify = environment.pop("NOTIFY_SOCKET", None)
    listening = None
    if owner == str(pid) and count.isdecimal() and int(count):
        listening = _listening(first, min(int(count), MOST_DESCRIPTORS))
    return Launch(listening=listening, notify=notify or None, take_over=take_over)


def _listening(first: int, count: int) -> socket.socket:
    """Return the first TCP listener, and close the other sockets. Raises ConfigError."""
    passed = list(_sockets(first, count))
    found = next(filter(_is_tcp_listener, passed), None)
    for other in passed:
        if other is not found:
            other.close()
    if found is None:
        raise ConfigError("LISTEN_FDS", "none of the sockets passed is a listening TCP socket")
    return found


def _sockets(first: int, count: int) -> Iterator[socket.socket]:
    for descriptor in range(first, first + count):
        with suppress(OSError):  # the descriptor may not be a socket, or not be open
            os.set_inheritable(descriptor, False)
            yield socket.socket(fileno=descriptor)


def _is_tcp_listener(passed: socket.socket) -> bool:
    return (
        passed.family in {socket.AF_INET, socket.AF_INET6}
        and passed.type == socket.SOCK_STREAM
        and passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    )
