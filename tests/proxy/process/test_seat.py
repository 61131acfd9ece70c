"""Seat: one process at a time has the home and the listener, and the next one gets both whole."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.codex.connect import connect
from proxy.codex.place import Environment
from proxy.codex.saved import read_note
from proxy.codex.while_serving import HEIR_NAME
from proxy.config.load import Config
from proxy.config.settings import ServerSettings, UpstreamSettings
from proxy.control.socket import bind_unix
from proxy.errors import ConfigError, HomeTaken
from proxy.home.draining import drains
from proxy.home.lock import locked
from proxy.process.activation import Launch
from proxy.process.handover import (
    HANDOVER_NAME,
    REFUSED,
    TAKE_OVER,
    WORD_BYTES,
    OtherProcess,
    ask_for_offer,
    released,
    wait_next,
)
from proxy.process.seat import Seat, open_seat
from tests.proxy.codex.kit import URL, WALL, Homes

SECONDS = 10.0
TAKING_OVER = Launch(take_over=True)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    upstream = UpstreamSettings(url="http://127.0.0.1:1/v1")
    return Config(home=tmp_path / "home", server=ServerSettings(port=0), upstream=upstream)


async def hand_over(seat: Seat, said: list[bool], reason: str | None = None) -> None:
    """What the holder of a seat does until the next one is ready."""
    peer = await wait_next(seat.control, seat.listening, lambda _: reason)
    seat.give_up()
    with peer:
        said.append(await released(peer))


async def test_the_next_one_has_the_same_listener_and_the_lock(
    config: Config, nursery: trio.Nursery
) -> None:
    said: list[bool] = []
    async with open_seat(config, Launch()) as first:
        nursery.start_soon(hand_over, first, said)
        await wait_all_tasks_blocked()
        address = first.listening.getsockname()
        with trio.fail_after(SECONDS):
            async with open_seat(config, TAKING_OVER) as second:
                assert second.listening.getsockname() == address
                assert second.config.server.port == address[1]
                assert first.listening.fileno() == -1
                assert [drain.pid for drain in drains(config.home)] == [os.getpid()]
                with pytest.raises(HomeTaken), locked(config.home):
                    pytest.fail("nobody has the lock")
                assert said == []
                await second.ready()
                await wait_all_tasks_blocked()
                assert said == [True]

    with locked(config.home):
        assert drains(config.home) == []


@pytest.mark.parametrize("codex", ["connects", "does not", "connects another"])
async def test_codex_stays_connected_while_the_home_passes_to_one_that_connects_it_too(
    codex: str, config: Config, nursery: trio.Nursery
) -> None:
    homes = Homes(config.home.parent)
    homes.codex.mkdir()
    mine = Environment(home=config.home, environment={"CODEX_HOME": str(homes.codex)})
    other = Environment(home=config.home, environment={"CODEX_HOME": str(homes.root / "other")})
    following = {"connects": mine, "does not": None, "connects another": other}[codex]
    async with open_seat(config, Launch(), mine) as first:
        connect(mine.files, mine.home, mine.config, URL, lambda: WALL)
        connected = homes.config.read_bytes()
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_seat(config, TAKING_OVER, following) as second:
                await second.ready()
                kept = homes.config.exists() and homes.config.read_bytes() == connected
                note = read_note(mine.files, mine.home)

    assert kept is (codex == "connects")
    assert (note is not None and note.wall == WALL) is kept
    assert not homes.config.exists()
    assert not (config.home / HEIR_NAME).exists()


async def test_an_heir_that_has_ended_since_is_none(config: Config) -> None:
    homes = Homes(config.home.parent)
    homes.codex.mkdir()
    mine = Environment(home=config.home, environment={"CODEX_HOME": str(homes.codex)})
    async with open_seat(config, Launch(), mine):
        connect(mine.files, mine.home, mine.config, URL, lambda: WALL)
        (config.home / HEIR_NAME).write_text(f'[{2**22 + 1},"{mine.config}"]')

    assert not homes.config.exists()


async def test_who_goes_away_before_it_is_ready_is_noticed(
    config: Config, nursery: trio.Nursery
) -> None:
    said: list[bool] = []
    async with open_seat(config, Launch()) as first:
        nursery.start_soon(hand_over, first, said)
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_seat(config, TAKING_OVER):
                pass
            await wait_all_tasks_blocked()

        assert said == [False]


async def test_an_old_one_that_dies_at_the_commit_is_followed_all_the_same(
    config: Config, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async def die(seat: Seat) -> None:
        peer = await wait_next(seat.control, seat.listening, lambda _: None)
        peer.close()
        seat.give_up()

    async with open_seat(config, Launch()) as first:
        nursery.start_soon(die, first)
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_seat(config, TAKING_OVER) as second:
                await second.ready()
                with pytest.raises(HomeTaken), locked(config.home):
                    pytest.fail("nobody has the lock")

    assert "gone without a word" in caplog.text


async def test_whoever_does_not_know_the_words_is_sent_away_and_others_are_heard(
    config: Config, nursery: trio.Nursery
) -> None:
    async with open_seat(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        sock = trio.socket.socket(socket.AF_UNIX)
        await sock.connect(str(config.home / HANDOVER_NAME))
        with OtherProcess(sock) as stranger:
            await stranger.say(b"good morning\n")
            assert await stranger.hear(SECONDS) == (b"", None)
        offer = await ask_for_offer(first.control, only_if_draining=True)
        assert offer is not None
        with offer:
            assert offer.listening.getsockname() == first.listening.getsockname()
            assert not os.get_inheritable(offer.listening.fileno())
        nursery.cancel_scope.cancel()


async def test_what_fails_in_a_start_fails_before_anything_is_taken_over(
    config: Config, nursery: trio.Nursery
) -> None:
    async with open_seat(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        open_to_all = replace(config, server=replace(config.server, host="0.0.0.0"))
        with trio.fail_after(SECONDS), pytest.raises(ConfigError, match="needs keys"):
            async with open_seat(open_to_all, TAKING_OVER):
                pytest.fail("it is open to strangers")

        assert not first.given_up
        assert first.listening.fileno() != -1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("launch", [Launch(), TAKING_OVER])
async def test_a_refusal_is_said_with_its_reason(
    config: Config, nursery: trio.Nursery, launch: Launch
) -> None:
    async with open_seat(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [], "which has its reasons")
        await wait_all_tasks_blocked()
        expected = rf"in use by the process with pid {os.getpid()}, which has its reasons$"
        with trio.fail_after(SECONDS), pytest.raises(HomeTaken, match=expected):
            async with open_seat(config, launch):
                pytest.fail("two sit here")

        assert not first.given_up
        nursery.cancel_scope.cancel()


async def test_nobody_is_displaced_without_a_word(
    config: Config, autojump_clock: MockClock
) -> None:
    pid = os.getpid()
    expected = rf"pid {pid}, which does not answer; if pid {pid} hangs, `kill -9 {pid}` ends it"
    with locked(config.home), pytest.raises(HomeTaken, match=expected):
        async with open_seat(config, Launch()):
            pytest.fail("two sit here")

    assert 2 <= trio.current_time() < 3


async def hold(
    home: Path, seconds: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Have the home for a while, as somebody who does not answer."""
    with locked(home):
        task_status.started()
        await trio.sleep(seconds)


async def test_a_command_that_has_the_home_for_a_moment_is_waited_for(
    config: Config, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await nursery.start(hold, config.home, 1)
    async with open_seat(config, Launch()):
        assert 1 <= trio.current_time() < 2


async def test_one_that_does_not_answer_is_waited_for(
    config: Config, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await nursery.start(hold, config.home, 9)
    async with open_seat(config, TAKING_OVER) as seat:
        assert 9 <= trio.current_time() < 10
        assert seat.listening.getsockname()[1] != 0


async def test_one_that_does_not_end_either_is_not_waited_for_for_ever(
    config: Config, autojump_clock: MockClock
) -> None:
    with locked(config.home), pytest.raises(HomeTaken):
        async with open_seat(config, TAKING_OVER):
            pytest.fail("two sit here")

    assert 15 <= trio.current_time() < 16


async def test_the_service_managers_listener_decides_where_turnlane_is(config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as passed:
        address = passed.getsockname()
        async with open_seat(config, Launch(listening=passed.dup())) as seat:
            assert (seat.managed, seat.config.server.port) == (True, address[1])
            assert seat.listening.getsockname() == address


# The words.


@pytest.mark.parametrize(
    "answer", [b"", b"what?\n", b"offer\n", b"offer", b"x" * (WORD_BYTES + 1), b"\xff\n"]
)
async def test_what_is_no_offer_is_none(
    tmp_path: Path, nursery: trio.Nursery, answer: bytes
) -> None:
    async def old() -> None:
        with bind_unix(str(tmp_path / HANDOVER_NAME)) as door:
            task.set()
            sock, _ = await door.accept()
            with OtherProcess(sock) as peer:
                assert await peer.hear(SECONDS) == (TAKE_OVER, None)
                await peer.say(answer)

    task = trio.Event()
    nursery.start_soon(old)
    await task.wait()
    control = str(tmp_path / "control.sock")
    with trio.fail_after(SECONDS):
        assert await ask_for_offer(control, only_if_draining=False) is None


async def test_a_socket_that_comes_with_half_a_word_is_closed() -> None:
    ours, theirs = trio.socket.socketpair(socket.AF_UNIX)
    with socket.socket() as passed, OtherProcess(ours) as one, OtherProcess(theirs) as other:
        await one.say(b"half", passed.fileno())
        one.close()
        word, found = await other.hear(SECONDS)

    assert (word, found) == (b"", None)


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    ours, theirs = trio.socket.socketpair(socket.AF_UNIX)
    with OtherProcess(ours) as one, OtherProcess(theirs):
        assert await one.hear(0.01) == (b"", None)


async def test_a_peer_that_is_gone_can_be_spoken_to() -> None:
    ours, theirs = trio.socket.socketpair(socket.AF_UNIX)
    with OtherProcess(ours) as one:
        theirs.close()
        await one.say(REFUSED)
        assert await one.hear(SECONDS) == (b"", None)
