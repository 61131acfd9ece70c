"""Which processes are Codex clients of one home, and what is said when that cannot be seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from proxy.codex.adoption import CodexProcess
from proxy.codex.processes import Found, Process, find_clients, home_of, kind_of

T = TypeVar("T")
HOME = Path("/home/user/.codex")
USER = 1000
ENVIRONMENT = {"HOME": "/home/user"}


def denied() -> BaseException:
    return psutil.AccessDenied(7)


def gone() -> BaseException:
    return psutil.NoSuchProcess(7)


@dataclass
class FakeProcess:
    command: list[str]
    file: str = "/opt/codex/bin/codex"
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    user: int = USER
    pid: int = 7
    started: float = 1000.0
    fails: dict[str, Callable[[], BaseException]] = field(default_factory=dict)

    def uids(self) -> tuple[int, ...]:
        return self._or_fail("uids", (self.user, self.user, self.user))

    def name(self) -> str:
        return self._or_fail("name", self.file.rpartition("/")[2][:15])

    def exe(self) -> str:
        return self._or_fail("exe", self.file)

    def cmdline(self) -> list[str]:
        return self._or_fail("cmdline", self.command)

    def cwd(self) -> str:
        return self._or_fail("cwd", "/home/user/work")

    def environ(self) -> dict[str, str]:
        return self._or_fail("environ", self.environment)

    def create_time(self) -> float:
        return self._or_fail("create_time", self.started)

    def _or_fail(self, name: str, value: T) -> T:
        if name in self.fails:
            raise self.fails[name]()
        return value


def found(*processes: FakeProcess) -> Found:
    return find_clients(HOME, USER, lambda: processes)


def one(process: FakeProcess) -> CodexProcess | None:
    clients = found(process).clients
    return clients[0] if clients else None


@pytest.mark.parametrize(
    ("command", "file", "kind"),
    [
        (["codex"], "/usr/bin/codex", "cli"),
        (["/usr/bin/codex", "exec", "a prompt"], "/usr/bin/codex", "cli"),
        (["codex", "-c", "model=x", "app-server"], "/usr/bin/codex", "app-server"),
        (["codex", "mcp-server"], "/usr/bin/codex", "mcp-server"),
        (["codex-x86_64-unknown-linux-musl"], "/opt/codex-x86_64-unknown-linux-musl", "cli"),
        (["cx", "resume"], "/usr/bin/codex", "cli"),
        (["codex"], "/nix/store/x/.codex-wrapped", "cli"),
        (["codex"], "", "cli"),
        ([], "/usr/bin/codex", "cli"),
        (["codex", "say login"], "/usr/bin/codex", "cli"),
        (["codex", "app-server", "--listen", "unix://", "--managed-daemon"], "/codex", "daemon"),
        (["codex", "app-server", "daemon", "pid-update-loop"], "/usr/bin/codex", None),
        (["codex", "app-server", "proxy"], "/usr/bin/codex", None),
        (["codex", "login"], "/usr/bin/codex", None),
        (["codex", "--version"], "/usr/bin/codex", None),
        (["codex", "sandbox", "linux", "codex"], "/usr/bin/codex", None),
        (["codex-linux-sandbox", "--", "sh"], "/usr/bin/codex", None),
        (["apply_patch", "x"], "/usr/bin/codex", None),
        (["codex-code-mode-host"], "/usr/bin/codex-code-mode-host", None),
        (["node", "/usr/bin/codex", "app-server"], "/usr/bin/node", None),
        (["node", "/lib/@openai/codex/bin/codex.js"], "/usr/bin/node", None),
        (["vim", "codex"], "/usr/bin/vim", None),
        (["grep", "-r", "codex", "/home/user/.codex"], "/usr/bin/grep", None),
        (["python3", "-m", "codex"], "/usr/bin/python3", None),
        (["codexify"], "/usr/bin/codexify", None),
    ],
)
def test_what_a_process_is_called_says_whether_it_is_a_client(
    command: list[str], file: str, kind: str | None
) -> None:
    assert kind_of("", file, command) == kind


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"HOME": "/home/user"}, "/home/user/.codex"),
        ({"HOME": "/home/user", "CODEX_HOME": ""}, "/home/user/.codex"),
        ({"HOME": "/home/user", "CODEX_HOME": "/other"}, "/other"),
        ({"CODEX_HOME": "../x"}, "/home/user/x"),
        ({}, None),
    ],
)
def test_the_environment_of_a_process_says_which_home_it_uses(
    environment: dict[str, str], home: str | None
) -> None:
    assert home_of(environment, "/home/user/work") == (None if home is None else Path(home))


def test_a_client_of_this_home_is_found_with_its_age() -> None:
    client = one(FakeProcess(["codex", "app-server"]))

    assert client == CodexProcess(pid=7, kind="app-server", started=1000.0)


@pytest.mark.parametrize(
    "process",
    [
        FakeProcess(["codex"], user=USER + 1),
        FakeProcess(["codex"], environment={"CODEX_HOME": "/other"}),
        FakeProcess(["vim", "codex"], file="/usr/bin/vim"),
        FakeProcess(["codex"], fails={"uids": denied}),
        *(FakeProcess(["codex"], fails={name: gone}) for name in ("uids", "name", "environ")),
        FakeProcess(["codex"], fails={"create_time": lambda: psutil.ZombieProcess(7)}),
    ],
)
def test_whoever_is_no_client_of_this_home_is_not_counted(process: FakeProcess) -> None:
    assert found(process) == Found((), complete=True)


@pytest.mark.parametrize(
    "process",
    [
        *(FakeProcess(["codex"], fails={name: denied}) for name in ("environ", "create_time")),
        FakeProcess(["codex"], environment={}),
        FakeProcess(["codex"], fails={"cmdline": denied, "environ": denied}),
    ],
)
def test_a_client_that_cannot_be_looked_into_is_unreadable(process: FakeProcess) -> None:
    assert one(process) == CodexProcess(pid=7, kind="cli", started=None)


@pytest.mark.parametrize("hidden", ["exe", "cmdline"])
def test_a_client_is_known_by_what_can_be_read_of_it(hidden: str) -> None:
    assert one(FakeProcess(["codex"], fails={hidden: denied})) is not None


def test_a_program_that_was_replaced_on_the_disk_is_still_a_client() -> None:
    assert one(FakeProcess(["cx"], file="/usr/bin/codex (deleted)")) is not None


def test_a_walk_that_fails_is_not_an_empty_one() -> None:
    def walk() -> Iterator[Process]:
        yield FakeProcess(["codex"])
        raise PermissionError(13, "Permission denied")

    clients = find_clients(HOME, USER, walk)

    assert ([client.pid for client in clients.clients], clients.complete) == ([7], False)


@contextmanager
def running(program: Path, codex_home: Path) -> Iterator[int]:
    """A process whose program is called as `program` is."""
    environment = {**os.environ, "CODEX_HOME": str(codex_home)}
    waiting = [str(program), "-", "app-server"]
    with subprocess.Popen(
        waiting, stdin=subprocess.PIPE, env=environment, cwd=program.parent
    ) as process:
        assert process.stdin is not None
        try:
            yield process.pid
        finally:
            process.stdin.close()


def waiting_program(folder: Path, name: str) -> Path:
    """A copy of `cat`: it waits for its input, then reads the file of its other argument."""
    folder.mkdir()
    (folder / "app-server").touch()
    program = folder / name
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    return program


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a copied program may not run")
def test_a_real_process_is_found_by_its_program_and_its_home(tmp_path: Path) -> None:
    program = waiting_program(tmp_path / "bin", "codex")
    home = tmp_path / "home"
    home.mkdir()
    with running(program, home) as pid:
        here = find_clients(home, os.getuid())
        elsewhere = find_clients(tmp_path, os.getuid())
        (client,) = here.clients
        started = psutil.Process(pid).create_time()

    assert client == CodexProcess(pid=pid, kind="app-server", started=started)
    assert here.complete
    assert elsewhere.clients == ()
