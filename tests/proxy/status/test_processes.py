"""Who has a port, and which other turnlanes run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from proxy.status.processes import Listener, Neighbour, is_serving, listener_at, neighbours
from tests.testkit.listeners import HEALTHY, answering, closed_port

LOOPBACK = "127.0.0.1"


# Ports.


def test_a_port_where_nobody_listens_is_free() -> None:
    assert listener_at(LOOPBACK, closed_port()) is None
    assert listener_at(LOOPBACK, 0) is None


def test_a_turnlane_is_known_by_what_it_answers() -> None:
    with answering(HEALTHY) as port:
        taken = listener_at(LOOPBACK, port)

    assert taken is not None
    assert taken.turnlane


def test_one_that_hangs_is_not_asked_what_it_is() -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        taken = listener_at(LOOPBACK, port, hung=str(os.getpid()))
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()

    assert taken is not None
    assert (taken.pid, taken.turnlane) == (os.getpid(), False)


def test_another_program_is_known_by_its_pid_and_its_name() -> None:
    with answering(b"hello") as port:
        taken = listener_at(LOOPBACK, port)

    assert taken == Listener(pid=os.getpid(), name=psutil.Process().name())
    assert taken.named == f", pid {os.getpid()} ({psutil.Process().name()})"


def denied(_kind: str) -> list[Any]:
    raise psutil.AccessDenied


@pytest.mark.parametrize(
    ("pid", "named"), [(None, ""), (2**22 + 1, f", pid {2**22 + 1}")], ids=["hidden", "ended"]
)
def test_a_program_is_named_as_far_as_it_can_be_seen(pid: int | None, named: str) -> None:
    with answering(b"hello") as port:
        address = SimpleNamespace(port=port)
        listed = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=address, pid=pid)
        taken = listener_at(LOOPBACK, port, lambda _kind: [listed])

    assert taken == Listener(pid=pid)
    assert taken.named == named


@pytest.mark.parametrize("connections", [denied, lambda _kind: []], ids=["denied", "empty"])
def test_without_a_list_of_connections_the_port_is_still_taken(
    connections: Callable[[str], list[Any]],
) -> None:
    with answering(b"hello") as port:
        assert listener_at(LOOPBACK, port, connections) == Listener()


def test_an_address_that_is_not_this_machines_is_a_problem() -> None:
    taken = listener_at("192.0.2.1", 10110)

    assert taken is not None
    assert taken.problem is not None


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_the_other_loopback_is_looked_at_too() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        listening.close()
        port = closed_port()

    assert listener_at("::1", port) is None


# Processes.


@dataclass
class FakeProcess:
    command: list[str]
    pid: int = 9
    user: int | None = None
    fails: type[psutil.Error] | None = None
    environment: dict[str, str] | None = None

    def uids(self) -> Any:
        return SimpleNamespace(real=os.getuid() if self.user is None else self.user)

    def cmdline(self) -> list[str]:
        if self.fails is not None:
            raise self.fails(self.pid)
        return self.command

    def environ(self) -> dict[str, str]:
        if self.environment is None:
            raise psutil.AccessDenied(self.pid)
        return self.environment


def found(*processes: FakeProcess) -> list[Neighbour] | None:
    return neighbours(lambda: iter(processes))


SERVING = ["/usr/bin/turnlane", "serve"]
NINE = Neighbour(pid=9, command="turnlane serve")


@pytest.mark.parametrize(
    ("words", "serves"),
    [
        (["/usr/bin/turnlane", "serve"], True),
        (["python3", "/usr/bin/turnlane", "serve", "--port", "0"], True),
        (["python3", "-P", "-m", "turnlane", "serve"], True),
        (["python3", "-P", "-m", "proxy", "serve"], True),
        (["python3", "-m", "proxy", "status"], False),
        (["turnlane", "status"], False),
        (["turnlane"], False),
        (["grep", "turnlane", "x"], False),
        (["vim", "proxy", "serve"], False),
        (["proxy", "serve", "-m"], False),
        ([], False),
    ],
)
def test_a_command_line_says_whether_it_serves(words: list[str], serves: bool) -> None:
    assert is_serving(words) is serves


def test_other_turnlanes_of_this_user_are_found() -> None:
    assert found(FakeProcess(SERVING), FakeProcess(["sh"], pid=10)) == [NINE]


def test_their_home_and_how_they_were_started_are_named() -> None:
    started = ["python3", "-m", "proxy", "serve", "--port", "1"]
    (there,) = found(FakeProcess(started, environment={"TURNLANE_HOME": "/x"})) or []
    (plain,) = found(FakeProcess(started, environment={})) or []

    assert str(there) == "pid 9, TURNLANE_HOME=/x (turnlane serve --port 1)"
    assert str(plain) == "pid 9 (turnlane serve --port 1)"


def test_those_of_others_and_ourselves_are_not() -> None:
    others = FakeProcess(SERVING, user=os.getuid() + 1)

    assert found(others, FakeProcess(SERVING, pid=os.getpid())) == []


@pytest.mark.parametrize("fails", [psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess])
def test_one_that_cannot_be_looked_into_hides_no_other(fails: type[psutil.Error]) -> None:
    assert found(FakeProcess(SERVING, pid=8, fails=fails), FakeProcess(SERVING)) == [NINE]


def test_a_list_that_cannot_be_read_is_not_an_empty_one() -> None:
    def processes() -> Iterator[FakeProcess]:
        yield FakeProcess(SERVING)
        raise PermissionError

    assert neighbours(processes) is None


def test_the_real_list_is_read() -> None:
    waiting = [sys.executable, "-c", "input()", "turnlane", "serve"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as process:
        there = neighbours()
        process.communicate(b"\n")

    assert process.pid in {each.pid for each in there or []}
