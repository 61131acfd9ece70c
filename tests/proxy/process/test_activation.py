"""Launch: what a service manager passes is taken once, by the process that it is meant for."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.process.activation import Launch, read_launch

PID = 4711
HOST = "127.0.0.1"


@contextmanager
def passed(*sockets: socket.socket) -> Iterator[int]:
    """Duplicate descriptors in a row, from a number on that nothing else uses."""
    first = 700
    for offset, each in enumerate(sockets):
        os.dup2(each.fileno(), first + offset)
    try:
        yield first
    finally:
        for offset in range(len(sockets)):
            if is_open(first + offset):
                os.close(first + offset)


def is_open(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def variables(count: int, pid: int = PID) -> dict[str, str]:
    return {"LISTEN_FDS": str(count), "LISTEN_PID": str(pid), "LISTEN_FDNAMES": "a:b", "KEPT": "1"}


def test_the_first_tcp_listener_is_taken_and_the_others_are_closed(tmp_path: Path) -> None:
    environment = variables(4)
    with (
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket() as quiet,
        socket.create_server((HOST, 0)) as good,
        socket.create_server((HOST, 0)) as another,
    ):
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        with passed(unix, quiet, good, another) as first:
            launch = read_launch(environment, PID, first=first)
            assert launch.listening is not None
            with launch.listening as listening:
                assert listening.fileno() == first + 2
                assert listening.getsockname() == good.getsockname()
                assert not os.get_inheritable(listening.fileno())
                open_ones = [is_open(first + offset) for offset in range(4)]

    assert open_ones == [False, False, True, False]
    assert environment == {"KEPT": "1"}


@pytest.mark.parametrize(
    "environment", [variables(1, PID + 1), variables(0), {"LISTEN_PID": str(PID)}, {}]
)
def test_what_was_passed_to_another_process_is_left_alone(environment: dict[str, str]) -> None:
    kept = {key: text for key, text in environment.items() if key == "KEPT"}

    assert read_launch(environment, PID, first=700) == Launch()
    assert environment == kept


def test_sockets_that_cannot_be_served_on_are_refused(tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    with socket.socket() as quiet, passed(quiet) as first:
        os.dup2(file, first + 1)
        with pytest.raises(ConfigError, match="LISTEN_FDS: none of the sockets"):
            read_launch(variables(3), PID, first=first)
    os.close(file)
    os.close(first + 1)


def test_the_manager_is_told_on_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        environment = {"NOTIFY_SOCKET": path}
        read_launch(environment, PID).tell("READY=1")

        assert manager.recv(100) == b"READY=1"
        assert environment == {}


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="abstract names are Linux's")
def test_a_manager_may_have_an_abstract_name() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        Launch(notify=f"@{manager.getsockname()[1:].decode()}").tell("READY=1")

        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("notify", [None, "/no/such/socket"])
def test_a_manager_need_not_listen(notify: str | None) -> None:
    Launch(notify=notify).tell("READY=1")
