"""Processes: the running Codex clients of this user and one CODEX_HOME; looking changes nothing."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

from proxy.codex.adoption import CodexProcess

_PROGRAM: Final = re.compile(r"codex(-(x86_64|aarch64)-[a-z0-9_-]+)?(\.exe)?")
"""As it is installed, and as it is called in a release archive."""
_DELETED: Final = " (deleted)"
_NOT_CLIENTS: Final = frozenset(
    {"completion", "exec-server", "help", "login", "logout", "sandbox", "update", "--version", "-V"}
)
"""Runs of the same program that ask no model anything."""
_ABOUT_SERVERS: Final = frozenset({"daemon", "generate-json-schema", "generate-ts", "proxy"})
"""What `codex app-server` does without being one; one such loop runs on beside the daemon."""
_SERVERS: Final = ("app-server", "mcp-server", "remote-control")
_HELPERS: Final = ("codex-", "apply_patch", "applypatch")
"""How Codex calls itself when it runs its own file as a tool."""


class Process(Protocol):
    """What is used of `psutil.Process`. Everything but `pid` may raise psutil.Error."""

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
    """`complete` is False when the walk failed: then clients may be missing."""

    clients: tuple[CodexProcess, ...]
    complete: bool


def find_clients(codex_home: Path, user: int, walk: Walk = psutil.process_iter) -> Found:
    """`codex_home` is resolved; so are those of the processes."""
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
    """Which kind of client a process is; None when it is none.

    A tool that Codex runs from its own file under another name is none, and neither is the script
    of the npm package: it starts the program and waits, and that one is found by itself. What a
    process is called and made of decides, never what stands in its arguments.
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
    """The CODEX_HOME of a process, resolved; None when its environment does not tell."""
    if named := environment.get("CODEX_HOME"):
        return Path(os.path.realpath(os.path.join(cwd, named)))
    if home := environment.get("HOME"):
        return Path(os.path.realpath(os.path.join(home, ".codex")))
    return None


def _client(process: Process, codex_home: Path, user: int) -> CodexProcess | None:
    """None for what is no client of this home, and for what has ended meanwhile."""
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
    """Names are readable where arguments are not: then the name decides."""
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
