"""Home: one process at a time holds it, and answers its user's commands."""

import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, chdir, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.control.commands import Command, ListKeys
from proxy.control.socket import COMMAND_BYTES, PEERS, WORK_SECONDS, answered, serve_control
from proxy.errors import ConfigError
from proxy.home.lock import holder, locked

SECONDS = 5.0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data" / "turnlane"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# The lock.


def test_a_home_is_made_for_its_user_alone(home: Path) -> None:
    with umask(0), locked(home) as control:
        assert mode(home) == 0o700
        assert mode(home / "lock") == 0o600
        assert (home / "lock").read_text() == f"{os.getpid()}\n"
        assert control == str(home / "control.sock")


def test_a_second_one_is_told_who_holds_it_and_takes_nothing(home: Path) -> None:
    with locked(home):
        with (
            pytest.raises(ConfigError, match=rf" {os.getpid()}$") as raised,
            locked(home),
        ):
            pytest.fail("two hold one home")
        assert raised.value.key == "TURNLANE_HOME"
        assert str(home) in raised.value.problem
        with pytest.raises(ConfigError), locked(home):
            pytest.fail("the first one has lost it")


def test_a_holder_that_has_not_said_who_it_is_is_unknown(home: Path) -> None:
    home.mkdir(parents=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(ConfigError, match="pid unknown"), locked(home):
            pytest.fail("two hold one home")


def test_who_only_looks_who_holds_it_keeps_nobody_out(home: Path) -> None:
    home.mkdir(parents=True)
    with (home / "lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        with locked(home, pause=lambda _seconds: looking.close()):
            assert holder(home) == str(os.getpid())


def test_a_holder_is_named_and_what_is_left_of_one_is_not(home: Path) -> None:
    assert holder(home) is None
    with locked(home):
        assert holder(home) == str(os.getpid())
    assert (home / "lock").read_text() == f"{os.getpid()}\n"
    assert holder(home) is None


@pytest.mark.parametrize("left", [b"", b"1234567890 and more\n", b"\xff\xfe"])
def test_a_lock_ends_with_its_holder_whatever_the_file_says(left: bytes, home: Path) -> None:
    home.mkdir(parents=True)
    (home / "lock").write_bytes(left)
    with pytest.raises(KeyError), locked(home):
        raise KeyError

    with locked(home):
        assert (home / "lock").read_text() == f"{os.getpid()}\n"


def test_a_home_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=str(path)) as raised, locked(path):
            pytest.fail("a file is no home")
        assert raised.value.key == "TURNLANE_HOME"


def test_a_long_path_is_shortened_from_where_we_stand(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)

    with chdir(tmp_path), locked(long) as control:
        assert control == f"{long.name}/control.sock"


def test_a_path_that_no_socket_can_have_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)

    with pytest.raises(ConfigError, match="100 bytes") as raised, locked(long):
        pytest.fail("there is no such socket")
    assert raised.value.key == "TURNLANE_HOME"
    assert not long.exists()


# The control socket.


STATUS = b'{"command":"status"}\n'
ANSWERED = {"asked": {"command": "status"}}


async def answer(command: Command) -> dict[str, Command]:
    if command == ListKeys():
        raise RuntimeError("a bug")
    await trio.lowlevel.checkpoint()
    return {"asked": command}


def leave_a_socket_behind(home: Path) -> None:
    home.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "control.sock"))


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Path]:
    """A control socket that answers, for the block, which has to end soon."""
    with trio.fail_after(SECONDS), locked(home) as control:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, control, answer, nursery)
            yield Path(control)
            nursery.cancel_scope.cancel()


async def reply(stream: trio.SocketStream) -> Any:
    """The one line that comes back; None when the other side just closes."""
    found = b"".join([piece async for piece in stream])
    assert found.endswith(b"\n") or not found
    return msgspec.json.decode(found) if found else None


async def command(control: Path, *pieces: bytes) -> Any:
    async with await trio.open_unix_socket(control) as stream:
        for piece in pieces:
            await stream.send_all(piece)
            await wait_all_tasks_blocked()
        return await reply(stream)


async def test_a_bug_in_a_command_is_its_own(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(home) as control:
        failed = await command(control, b'{"command":"keys.list"}\n')
        after = await command(control, STATUS)

    assert set(failed) == {"error"}
    assert "a bug" in failed["error"]
    assert after == ANSWERED
    assert "a command failed" in caplog.text


async def test_a_command_is_answered(home: Path) -> None:
    async with serving(home) as control:
        assert await command(control, STATUS) == ANSWERED
        assert await command(control, b'{"comm', b'and":"status"}', b"\n") == ANSWERED


async def test_a_command_that_never_comes_to_an_end_is_given_up(
    home: Path, autojump_clock: MockClock
) -> None:
    async def hang(command: Command) -> object:
        await trio.sleep_forever()

    began = trio.current_time()
    said = await answered(STATUS, hang)

    assert "60 s" in msgspec.json.decode(said)["error"]
    assert trio.current_time() - began == WORK_SECONDS


async def test_the_socket_is_its_users_alone_whatever_the_umask(home: Path) -> None:
    with umask(0):
        async with serving(home) as control:
            assert mode(control) == 0o600
            made = control.with_name("made")
            made.touch()
            assert mode(made) == 0o666


async def test_a_socket_that_a_killed_process_left_is_replaced_and_ours_is_removed(
    home: Path,
) -> None:
    leave_a_socket_behind(home)
    async with serving(home) as control:
        assert await command(control, STATUS) == ANSWERED

    assert not control.exists()


@pytest.mark.parametrize(
    "line",
    [b"\n", b"[]\n", b"{}\n", b'"status"\n', b"{\n", b"\xff\n", b'{"a":' + b"[" * 50_000 + b"\n"],
    ids=lambda line: repr(line)[:12],
)
async def test_what_is_no_command_is_answered_too(line: bytes, home: Path) -> None:
    async with serving(home) as control:
        said = await command(control, line)

        assert set(said) == {"error"}
        assert await command(control, STATUS) == ANSWERED


async def test_a_command_that_never_ends_is_cut_at_its_limit(home: Path) -> None:
    async with serving(home) as control, await trio.open_unix_socket(control) as stream:
        await stream.send_all(b"[" + b" " * (COMMAND_BYTES - 1))

        assert "error" in await reply(stream)


async def test_a_peer_that_leaves_is_forgotten(home: Path) -> None:
    async with serving(home) as control:
        for sent in (b"", b"{", STATUS):
            async with await trio.open_unix_socket(control) as stream:
                await stream.send_all(sent)
                if sent != STATUS:
                    await stream.send_eof()
                    assert await reply(stream) is None

        assert await command(control, STATUS) == ANSWERED


async def test_those_who_say_nothing_do_not_keep_others_waiting_until_all_places_are_taken(
    home: Path,
) -> None:
    async with serving(home) as control, trio.open_nursery() as nursery:
        silent = [await trio.open_unix_socket(control) for _ in range(PEERS - 1)]
        assert await command(control, STATUS) == ANSWERED
        silent.append(await trio.open_unix_socket(control))
        answered = trio.Event()

        async def ask() -> None:
            assert await command(control, STATUS) == ANSWERED
            answered.set()

        nursery.start_soon(ask)
        await wait_all_tasks_blocked(0.01)  # long enough for a socket to be seen as readable
        assert not answered.is_set()
        for stream in silent:
            await stream.aclose()

        await answered.wait()
