"""The running Codex clients of this user with one CODEX_HOME; changes nothing."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

from proxy.codex.adoption import CodexProcess

_PROGRAM: Final = re.compile(r"codex(-(x86_64|aarch64)-[a-z0-9_-]+)?(\.exe)?")
"""The program's name as it is installed, or as it is in a release archive."""
_DELETED: Final = " (deleted)"
_NOT_CLIENTS: Final = frozenset(
    {"completion", "exec-server", "help", "login", "logout", "sandbox", "update", "--version", "-V"}
)
"""Subcommands and options of the same program that send no turns."""
_ABOUT_SERVERS: Final = frozenset({"daemon", "generate-json-schema", "generate-ts", "proxy"})
"""Subcommands of `codex app-server` that are not a server; one of them stays next to the daemon."""
_SERVERS: Final = ("app-server", "mcp-server", "remote-control")
_HELPERS: Final = ("codex-", "apply_patch", "applypatch")
"""The names under which Codex runs its own file as a tool."""


class Process(Protocol):
    """The used part of `psutil.Process`. Everything except `pid` may raise psutil.Error."""

    @property
    def pid(self) -> int: ...
    def uids(self) -> tuple[int, ...]: ...
    def name(self) -> str: ...
    def exe(self) -> str: ...
    def cmdline(self) -> list[str]: ...
    def cwd(self) -> str: ...
    def environ(self) -> dict[str, str]: ...
    def create_time(self) -> float: ...


Walk = Callable[[], Iterable[Process]]


@dataclass(frozen=True, slots=True)
class Found:
    """The clients. `complete` is False if the walk failed, so that some may be missing."""

    clients: tuple[CodexProcess, ...]
    complete: bool


def find_clients(codex_home: Path, user: int, walk: Walk = psutil.process_iter) -> Found:
    """Find the clients of a user with one home. `codex_home` has its links resolved, as the homes
    of the processes have."""
    clients: list[CodexProcess] = []
    try:
        for process in walk():
            client = _client(process, codex_home, user)
            if client is not None:
                clients.append(client)
    except (psutil.Error, OSError):
        return Found(tuple(clients), complete=False)
    return Found(tuple(clients), complete=True)


def kind_of(name: str, exe: str, command: Sequence[str]) -> str | None:
    """Return which kind of client a process is; None if it is not a client.

    A tool that Codex runs from its own file under another name is not a client. Neither is the
    script of the npm package: it starts the program and waits, and the program is found by itself.
    The name and the executable of a process decide, never its arguments.
    """
    called = _base(command[0]) if command else name
    is_tool = called.startswith(_HELPERS)
    if not (_is_program(called) or (_is_program(_base(exe)) and not is_tool)):
        return None
    return _kind_of_run(command[1:])


def _kind_of_run(words: Sequence[str]) -> str | None:
    first = next((word for word in words if word in _NOT_CLIENTS or not word.startswith("-")), "")
    if first in _NOT_CLIENTS:
        return None
    kind = next((word for word in words if word in _SERVERS), "cli")
    if kind == "app-server" and _ABOUT_SERVERS.intersection(words):
        return None
    return "daemon" if "--managed-daemon" in words else kind


def home_of(environment: Mapping[str, str], cwd: str) -> Path | None:
    """Return the CODEX_HOME of a process, resolved; None if its environment does not tell."""
    if named := environment.get("CODEX_HOME"):
        return Path(os.path.realpath(os.path.join(cwd, named)))
    if home := environment.get("HOME"):
        return Path(os.path.realpath(os.path.join(home, ".codex")))
    return None


def _client(process: Process, codex_home: Path, user: int) -> CodexProcess | None:
    """Return a client of this home; None for any other process, or one that has ended."""
    try:
        kind = _kind(process, user)
        if kind is None:
            return None
        try:
            home = home_of(process.environ(), process.cwd())
            started = process.create_time()
        except psutil.AccessDenied:
            return CodexProcess(pid=process.pid, kind=kind, started=None)
    except psutil.NoSuchProcess:  # a zombie too
        return None
    if home is None:
        return CodexProcess(pid=process.pid, kind=kind, started=None)
    return CodexProcess(pid=process.pid, kind=kind, started=started) if home == codex_home else None


def _kind(process: Process, user: int) -> str | None:
    """Return the kind of a process of this user, by its name if its arguments are unreadable."""
    try:
        if process.uids()[0] != user:
            return None
    except psutil.AccessDenied:
        return None
    name = process.name()
    try:
        return kind_of(name, _exe(process), process.cmdline())
    except psutil.AccessDenied:
        return kind_of(name, "", ())


def _exe(process: Process) -> str:
    try:
        return process.exe().removesuffix(_DELETED)
    except psutil.AccessDenied:
        return ""


def _is_program(name: str) -> bool:
    return _PROGRAM.fullmatch(name) is not None


def _base(path: str) -> str:
    return path.rpartition("/")[2]
