"""Neighbours: who else is there: what listens on a port, and other turnlanes of this user."""

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from proxy.control.identity import problem_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who has a port; `pid` is None where that cannot be seen. Or the `problem` with an address
    that nobody can listen on."""

    pid: int | None = None
    name: str | None = None
    turnlane: bool = False
    problem: str | None = None

    @property
    def whom(self) -> str:
        return "a turnlane with another home" if self.turnlane else "another program"

    @property
    def named(self) -> str:
        """For a sentence: `, pid 7 (python3)`."""
        if self.pid is None:
            return ""
        return f", pid {self.pid}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process that serves as turnlane does. `home` is its TURNLANE_HOME and `command` its
    command line, as far as they can be read."""

    pid: int
    home: str | None = None
    command: str = ""

    def __str__(self) -> str:
        home = f", TURNLANE_HOME={self.home}" if self.home else ""
        command = f" ({self.command})" if self.command else ""
        return f"pid {self.pid}{home}{command}"


Connections = Callable[[str], Iterable[Any]]
"""As `psutil.net_connections`."""


def listener_at(
    host: str,
    port: int,
    connections: Connections = psutil.net_connections,
    hung: str | None = None,
) -> Listener | None:
    """Who keeps turnlane from listening there, seen by trying; None when nobody does. The pid
    `hung` did not answer and is not asked again."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return Listener(problem=error.strerror or str(error))
        else:
            return None
    pid = _pid_at(port, connections)
    answers = str(pid) != hung and problem_at(port, host) is None
    return Listener(pid=pid, name=_name(pid), turnlane=answers)


def neighbours(
    processes: Callable[[], Iterator[Any]] = psutil.process_iter,
) -> list[Neighbour] | None:
    """Other processes of this user that run `turnlane serve`; None if they cannot be listed."""
    found = []
    try:
        for process in processes():
            try:
                words = process.cmdline() if process.uids().real == os.getuid() else []
                if is_serving(words):
                    found.append(_neighbour(process, words))
            except psutil.Error:
                continue  # it has ended, or is nobody's business
    except (psutil.Error, OSError):
        return None
    return [each for each in found if each.pid != os.getpid()]


def _neighbour(process: psutil.Process, words: list[str]) -> Neighbour:
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


def _pid_at(port: int, connections: Connections) -> int | None:
    try:
        listening = (x for x in connections("tcp") if x.status == psutil.CONN_LISTEN)
        pids: list[int | None] = [x.pid for x in listening if x.laddr and x.laddr.port == port]
    except (psutil.Error, OSError):
        return None
    return pids[0] if pids else None


def _name(pid: int | None) -> str | None:
    try:
        return None if pid is None else psutil.Process(pid).name()
    except psutil.Error:
        return None
