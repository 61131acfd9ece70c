"""What else runs here: what listens on a port, and other turnlanes of this user.

psutil, which is slow to import, is needed only where something has the port, and by the doctor.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.control.identity import Answerer, who_answers

if TYPE_CHECKING:
    import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The program that has a port; `pid` is None where that cannot be seen. Or the `problem` with
    an address on which no program can listen."""

    pid: int | None = None
    name: str | None = None
    turnlane: bool = False
    problem: str | None = None

    @property
    def whom(self) -> str:
        return "a turnlane with another home" if self.turnlane else "another program"

    @property
    def named(self) -> str:
        """The end of a clause: `, pid 7 (python3)`."""
        if self.pid is None:
            return ""
        return f", pid {self.pid}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that runs `turnlane serve`. `home` is its TURNLANE_HOME and `command` its
    command line, as far as they can be read."""

    pid: int
    home: str | None = None
    command: str = ""

    def __str__(self) -> str:
        home = f", TURNLANE_HOME={self.home}" if self.home else ""
        command = f" ({self.command})" if self.command else ""
        return f"pid {self.pid}{home}{command}"


Connections = Callable[[str], Iterable[Any]]
"""A function like `psutil.net_connections`."""


def listener_at(
    host: str,
    port: int,
    connections: Connections | None = None,
    hung: str | None = None,
) -> Listener | None:
    """Return what keeps turnlane from listening there, seen by trying; None when nothing does. The
    pid `hung` did not answer and is not asked again. `connections` as `psutil.net_connections`."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return Listener(problem=error.strerror or str(error))
        else:
            return None
    pid, name = _at(port, connections)
    at = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ours = str(pid) != hung and who_answers(at).by is Answerer.TURNLANE
    return Listener(pid=pid, name=name, turnlane=ours)


def neighbours(
    processes: Callable[[], Iterator[Any]] | None = None,
) -> list[Neighbour] | None:
    """Find other processes of this user that run `turnlane serve`; None if they cannot be listed.
    `processes` as `psutil.process_iter`."""
    import psutil

    found = []
    try:
        for process in (processes or psutil.process_iter)():
            try:
                words = process.cmdline() if process.uids().real == os.getuid() else []
                if is_serving(words):
                    found.append(_neighbour(process, words))
            except psutil.Error:
                continue  # it has ended, or may not be looked into
    except (psutil.Error, OSError):
        return None
    return [each for each in found if each.pid != os.getpid()]


def _neighbour(process: "psutil.Process", words: list[str]) -> Neighbour:
    import psutil

    try:
        home = process.environ().get("TURNLANE_HOME")
    except (psutil.Error, OSError):
        home = None
    start = next(n for n, word in enumerate(words) if word == "serve")
    command = " ".join(["turnlane", *words[start:]])
    return Neighbour(pid=process.pid, home=home, command=command)


def is_serving(words: list[str]) -> bool:
    """Return whether a command line is that of `turnlane serve`.

    It may have been started as a script, by `-m turnlane`, or by `-m proxy`: in a checkout, or by a
    unit of an older version.
    """
    for before, word, after in zip(["", *words], words, words[1:], strict=False):
        program = os.path.basename(word) == "turnlane" or (before, word) == ("-m", "proxy")
        if program and after == "serve":
            return True
    return False


def _at(port: int, connections: Connections | None) -> tuple[int | None, str | None]:
    """Return the pid and the name of what listens on a port, as far as they can be seen."""
    import psutil

    pid: int | None = None
    try:
        for each in (connections or psutil.net_connections)("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
                pid = each.pid
                break
        return pid, None if pid is None else psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return pid, None
