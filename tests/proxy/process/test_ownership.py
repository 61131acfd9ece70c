"""Ownership: one process at a time has home and listener, and the next one gets both."""

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
from proxy.config.load import Config
from proxy.config.settings import ServerSettings, UpstreamSettings
from proxy.control.socket import bind_unix
from proxy.errors import ConfigError, HomeTaken
from proxy.home.draining import drains
from proxy.home.lock import locked
from proxy.process.activation import Launch
from proxy.process.handover import (
    HANDOVER_NAME,
    MESSAGE_BYTES,
    Message,
    Peer,
    Word,
    ask_for_offer,
    is_ready,
    wait_next,
)
from proxy.process.ownership import Ownership, open_ownership
from tests.proxy.codex.kit import URL, WALL, Homes
from tests.testkit.snapshots import Snapshot

SECONDS = 10.0
TAKING_OVER = Launch(take_over=True)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    upstream = UpstreamSettings(url="http://127.0.0.1:1/v1")
    return Config(home=tmp_path / "home", server=ServerSettings(port=0), upstream=upstream)


async def hand_over(ownership: Ownership, said: list[bool], reason: str | None = None) -> None:
    """What a running process does until the next one is ready."""
    peer, codex = await wait_next(ownership.control, ownership.listening, lambda _: reason)
    ownership.leave(codex)
    with peer:
        said.append(await is_ready(peer))


async def test_the_next_process_gets_the_same_listener_and_the_lock(
    config: Config, nursery: trio.Nursery
) -> None:
    said: list[bool] = []
    async with open_ownership(config, Launch()) as first:
        nursery.start_soon(hand_over, first, said)
        await wait_all_tasks_blocked()
        address = first.listening.getsockname()
        left = config.home / "draining-1"
        left.write_text('{"pid":1,"since":1.0}')  # by a process that was killed
        with trio.fail_after(SECONDS):
            async with open_ownership(config, TAKING_OVER) as second:
                assert not left.exists()
                assert second.listening.getsockname() == address
                assert second.config.server.port == address[1]
                assert first.listening.fileno() == -1
                assert [drain.pid for drain in drains(config.home)] == [os.getpid()]
                with pytest.raises(HomeTaken), locked(config.home):
                    pytest.fail("the lock is free")
                assert said == []
                await second.ready()
                await wait_all_tasks_blocked()
                assert said == [True]

    with locked(config.home):
        assert drains(config.home) == []


@pytest.mark.parametrize("codex", ["connects", "does not", "connects another"])
async def test_codex_stays_connected_if_the_next_process_connects_it_too(
    codex: str, config: Config, nursery: trio.Nursery
) -> None:
    homes = Homes(config.home.parent)
    homes.codex.mkdir()
    mine = Environment(home=config.home, environment={"CODEX_HOME": str(homes.codex)})
    other = Environment(home=config.home, environment={"CODEX_HOME": str(homes.root / "other")})
    following = {"connects": mine, "does not": None, "connects another": other}[codex]
    async with open_ownership(config, Launch(), mine) as first:
        connect(mine.files, mine.home, mine.config, URL, lambda: WALL)
        connected = homes.config.read_bytes()
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_ownership(config, TAKING_OVER, following) as second:
                await second.ready()
                kept = homes.config.exists() and homes.config.read_bytes() == connected
                note = read_note(mine.files, mine.home)

    assert kept is (codex == "connects")
    assert (note is not None and note.wall == WALL) is kept
    assert not homes.config.exists()


async def test_a_next_process_that_ends_before_it_is_ready_is_noticed(
    config: Config, nursery: trio.Nursery
) -> None:
    said: list[bool] = []
    async with open_ownership(config, Launch()) as first:
        nursery.start_soon(hand_over, first, said)
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_ownership(config, TAKING_OVER):
                pass
            await wait_all_tasks_blocked()

        assert said == [False]


@pytest.mark.parametrize("moment", ["before the offer", "after the offer", "after the commit"])
async def test_a_process_that_dies_in_between_is_followed_all_the_same(
    config: Config, nursery: trio.Nursery, moment: str
) -> None:
    async def die(ownership: Ownership) -> None:
        if moment == "after the commit":
            peer, _ = await wait_next(ownership.control, ownership.listening, lambda _: None)
            peer.close()
        else:
            with bind_unix(str(config.home / HANDOVER_NAME)) as bound:
                sock, _ = await bound.accept()
                with Peer(sock) as peer:
                    assert await peer.hear() == Message(word=Word.TAKE_OVER)
                    if moment == "after the offer":
                        await peer.say(Word.OFFER, descriptor=ownership.listening.fileno())
        ownership.leave()

    async with open_ownership(config, Launch()) as first:
        address = first.listening.getsockname()
        nursery.start_soon(die, first)
        await wait_all_tasks_blocked()
        with trio.fail_after(SECONDS):
            async with open_ownership(config, TAKING_OVER) as second:
                await second.ready()
                with pytest.raises(HomeTaken), locked(config.home):
                    pytest.fail("the lock is free")
                same = second.listening.getsockname() == address
                assert same is (moment != "before the offer")


async def test_a_peer_that_talks_nonsense_is_sent_away_and_others_are_heard(
    config: Config, nursery: trio.Nursery
) -> None:
    async with open_ownership(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        sock = trio.socket.socket(socket.AF_UNIX)
        await sock.connect(str(config.home / HANDOVER_NAME))
        with Peer(sock) as stranger:
            await sock.send(b"good morning\n")
            assert await stranger.hear() is None
        running = await ask_for_offer(first.control, only_if_draining=True)
        assert running is not None
        with running:
            assert running.passed is not None
            assert running.passed.getsockname() == first.listening.getsockname()
            assert not os.get_inheritable(running.passed.fileno())
        nursery.cancel_scope.cancel()


async def test_a_start_that_fails_takes_nothing_over(config: Config, nursery: trio.Nursery) -> None:
    async with open_ownership(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [])
        await wait_all_tasks_blocked()
        open_to_all = replace(config, server=replace(config.server, host="0.0.0.0"))
        with trio.fail_after(SECONDS), pytest.raises(ConfigError, match="turnlane keys add"):
            async with open_ownership(open_to_all, TAKING_OVER):
                pytest.fail("it is open to strangers")

        assert not first.left
        assert first.listening.fileno() != -1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("launch", [Launch(), TAKING_OVER])
async def test_a_refused_start_says_why(
    config: Config, nursery: trio.Nursery, launch: Launch
) -> None:
    async with open_ownership(config, Launch()) as first:
        nursery.start_soon(hand_over, first, [], "which has its reasons")
        await wait_all_tasks_blocked()
        expected = rf"in use by the process with pid {os.getpid()}, which has its reasons$"
        with trio.fail_after(SECONDS), pytest.raises(HomeTaken, match=expected):
            async with open_ownership(config, launch):
                pytest.fail("two own one home")

        assert not first.left
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("launch", "seconds"), [(Launch(), 2), (TAKING_OVER, 15)], ids=["start", "take-over"]
)
async def test_a_holder_that_does_not_answer_is_waited_for_and_keeps_the_home(
    config: Config,
    autojump_clock: MockClock,
    snapshot: Snapshot,
    launch: Launch,
    seconds: float,
) -> None:
    with locked(config.home), pytest.raises(HomeTaken) as raised:
        async with open_ownership(config, launch):
            pytest.fail("two own one home")

    assert seconds <= trio.current_time() < seconds + 1
    snapshot("errors", raised.value, home=config.home, pid=os.getpid())


async def hold(
    home: Path, seconds: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Have the home for a while, without answering."""
    with locked(home):
        task_status.started()
        await trio.sleep(seconds)


@pytest.mark.parametrize(("launch", "seconds"), [(Launch(), 1), (TAKING_OVER, 9)])
async def test_a_start_waits_until_the_holder_gives_the_home_up(
    config: Config,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    launch: Launch,
    seconds: float,
) -> None:
    await nursery.start(hold, config.home, seconds)
    async with open_ownership(config, launch) as ownership:
        assert seconds <= trio.current_time() < seconds + 1
        assert ownership.listening.getsockname()[1] != 0


async def test_a_service_managers_listener_decides_the_address(config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as passed:
        address = passed.getsockname()
        async with open_ownership(config, Launch(listening=passed.dup())) as ownership:
            assert (ownership.managed, ownership.config.server.port) == (True, address[1])
            assert ownership.listening.getsockname() == address


# The conversation.


OFFER = b"offer"


@pytest.mark.parametrize(
    "answer",
    [b"", b"what?\n", b"what\n", OFFER, OFFER + b"\n", b"x" * MESSAGE_BYTES, b"\xff\n"],
)
async def test_an_answer_without_a_socket_is_not_an_offer(
    tmp_path: Path, nursery: trio.Nursery, answer: bytes
) -> None:
    async def running() -> None:
        with bind_unix(str(tmp_path / HANDOVER_NAME)) as bound:
            task.set()
            sock, _ = await bound.accept()
            with Peer(sock) as peer:
                assert await peer.hear() == Message(word=Word.TAKE_OVER)
                await sock.send(answer)

    task = trio.Event()
    nursery.start_soon(running)
    await task.wait()
    control = str(tmp_path / "control.sock")
    with trio.fail_after(SECONDS):
        assert await ask_for_offer(control, only_if_draining=False) is None


async def test_a_socket_that_was_passed_is_closed_with_its_peer_unless_it_is_taken() -> None:
    ours, theirs = trio.socket.socketpair(socket.AF_UNIX)
    with socket.socket() as sent, Peer(ours) as one:
        with Peer(theirs) as other:
            await one.say(Word.OFFER, descriptor=sent.fileno())
            assert await other.hear() == Message(word=Word.OFFER)
            passed = other.passed
            assert passed is not None
            assert passed.fileno() != -1
        assert passed.fileno() == -1


async def test_a_peer_that_says_nothing_or_is_gone_is_given_up(autojump_clock: MockClock) -> None:
    ours, theirs = trio.socket.socketpair(socket.AF_UNIX)
    with Peer(ours) as one:
        assert await one.hear() is None
        theirs.close()
        await one.say(Word.READY)
        assert await one.hear() is None
