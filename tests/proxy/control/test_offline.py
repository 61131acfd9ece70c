"""What works on a home without a turnlane, and how the one that runs is asked first."""

import os
import shutil
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId
from proxy.config.load import Config
from proxy.control.client import NoAnswer, NotRunning, ask
from proxy.control.commands import (
    AddAccount,
    AddKey,
    ListAccounts,
    ListKeys,
    ListWorkflows,
    PauseAccount,
    PreviewThread,
    RemoveAccount,
    Request,
    RevokeKey,
    ShowUrl,
)
from proxy.control.offline import ask_about_accounts, ask_about_keys, past_of, past_on_disk
from proxy.database_file import DATABASE_NAME
from proxy.errors import ConfigError
from proxy.home.lock import CONTROL_NAME, locked
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import LastHour, Past
from proxy.keys import KeyRing
from tests.testkit.home import journal, remembered
from tests.testkit.listeners import commanded, listening
from tests.testkit.snapshots import Snapshot
from tests.testkit.users import as_somebody

A = TypeVar("A")
NOW = 1_800_000_000.0
TURN = TurnRecord(
    wall=NOW - 1,
    principal="local",
    transport=Transport.HTTP,
    outcome=Outcome.COMPLETED,
    lane="a" * 32,
)
KNOWN = Past(hour=LastHour(turns=1), last_turn=NOW - 1)


def files(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(home.iterdir())
    }


def test_where_nothing_was_nothing_is_made(tmp_path: Path) -> None:
    assert past_of(tmp_path / "home", NOW) == Past()
    assert not (tmp_path / "home").exists()


def test_one_that_runs_is_asked(tmp_path: Path) -> None:
    with commanded(tmp_path, {"past": {"past": msgspec.to_builtins(KNOWN)}}):
        assert past_of(tmp_path, NOW) == KNOWN


@pytest.mark.parametrize("said", [{}, {"error": "unknown command"}, {"past": {"hour": 1}}])
def test_one_that_does_not_know_is_as_none(said: dict[str, object], tmp_path: Path) -> None:
    with journal(tmp_path, TURN):
        pass
    with commanded(tmp_path, {"past": said}):
        assert past_of(tmp_path, NOW) == KNOWN


def test_a_journal_at_rest_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    with journal(tmp_path, TURN):
        pass
    before = files(tmp_path)

    assert past_on_disk(tmp_path, NOW) == KNOWN
    assert files(tmp_path) == before
    assert list(before) == [DATABASE_NAME]


def test_what_a_killed_process_left_beside_its_journal_counts_and_stays(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    with journal(tmp_path, TURN, replace(TURN, wall=NOW - 2)):
        for path in tmp_path.glob(f"{DATABASE_NAME}*"):
            shutil.copy(path, killed)
    before = files(killed)

    assert past_on_disk(killed, NOW).hour.turns == 2
    assert files(killed) == before
    assert f"{DATABASE_NAME}-wal" in before


@pytest.mark.parametrize("kind", ["nonsense", "log-alone"])
def test_a_journal_that_cannot_be_read_is_named(kind: str, tmp_path: Path) -> None:
    if kind == "nonsense":
        (tmp_path / DATABASE_NAME).write_bytes(b"no journal at all, but long enough to be read")
    else:
        (tmp_path / DATABASE_NAME).mkdir()
        (tmp_path / f"{DATABASE_NAME}-wal").touch()

    with pytest.raises(ConfigError, match=DATABASE_NAME):
        past_on_disk(tmp_path, NOW)


def test_a_journal_that_may_not_be_read_is_named() -> None:
    with as_somebody() as home:
        (home / DATABASE_NAME).touch(mode=0o000)

        with pytest.raises(ConfigError):
            past_on_disk(home, NOW)


# Commands.


def test_where_none_runs_keys_are_made_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = ask_about_keys(home, AddKey(name="desk"))

    assert KeyRing(home).holder(made.secret) == made.key.id
    assert ask_about_keys(home, ListKeys()).keys == (made.key,)


def test_where_none_runs_accounts_are_changed_and_remembered_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def asked(command: Request[A]) -> A:
        config = Config(home=home)
        answer, running = ask_about_accounts(home, command, lambda: config)
        assert not running
        return answer

    asked(AddAccount(name="work", secret="sk-secret-one"))
    asked(PauseAccount(name="work"))
    paused = asked(ListAccounts()).accounts[0].standing
    moved = asked(AddAccount(name="work", secret="sk-secret-other")).moved
    asked(RemoveAccount(name="work"))
    asked(AddAccount(name="work", secret="sk-secret-third"))

    assert (paused, moved) == ("paused", True)
    known = remembered(home).accounts[AccountId("work")]
    assert (known.generation, known.paused) == (1, False)


def test_an_account_that_config_toml_hides_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "key"
    secret.write_text("sk-secret-two")
    secret.chmod(0o600)
    bare = Config(home=tmp_path)
    ask_about_accounts(tmp_path, AddAccount(name="work", secret="sk-secret-one"), lambda: bare)
    spec = AccountSpec(key=f"file:{secret}")
    config = Config(home=tmp_path, accounts={AccountId("work"): spec})
    removed, _ = ask_about_accounts(tmp_path, RemoveAccount(name="work"), lambda: config)

    assert "account work: the one in config.toml serves" in caplog.text
    assert (removed.configured, removed.left) == (True, 1)


def test_where_none_runs_nothing_else_can_be_asked(tmp_path: Path) -> None:
    with pytest.raises(NotRunning):
        ask(tmp_path, ListWorkflows())


def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    def in_pieces(peer: socket.socket) -> None:
        for piece in (b'{"url":', b'"http', b'://x","upstream":null}\n'):
            peer.sendall(piece)

    with listening(tmp_path, in_pieces):
        assert ask(tmp_path, ShowUrl()).url == "http://x"


@pytest.mark.parametrize("half", [b"", b'{"url"'])
def test_one_that_ends_before_it_has_answered_does_not_run(half: bytes, tmp_path: Path) -> None:
    with listening(tmp_path, lambda peer: peer.sendall(half)), pytest.raises(NotRunning):
        ask(tmp_path, ShowUrl())


def test_a_home_that_stays_held_is_left_alone_after_three_seconds(tmp_path: Path) -> None:
    pauses: list[float] = []
    with locked(tmp_path), pytest.raises(ConfigError, match="in use"):
        ask_about_keys(tmp_path, AddKey(name="desk"), pauses.append)

    assert len(KeyRing(tmp_path)) == 0
    assert 2.5 < sum(pauses) <= 3


def test_a_command_waits_for_the_one_before_it(tmp_path: Path) -> None:
    with ExitStack() as before:
        before.enter_context(locked(tmp_path))
        made = ask_about_keys(tmp_path, AddKey(name="desk"), lambda _: before.close())

    assert KeyRing(tmp_path).holder(made.secret) == made.key.id


def test_who_only_reads_waits_for_nobody(tmp_path: Path) -> None:
    def asked(command: Request[A]) -> A:
        config = Config(home=tmp_path)
        return ask_about_accounts(
            tmp_path, command, lambda: config, lambda _: pytest.fail("waits")
        )[0]

    asked(AddAccount(name="work", secret="sk-secret-one"))
    with locked(tmp_path):
        listed = asked(ListAccounts())
        previewed = asked(PreviewThread(thread="t"))
        keys = ask_about_keys(tmp_path, ListKeys(), lambda _: pytest.fail("waits"))

    assert [each.id for each in listed.accounts] == ["work"]
    assert previewed.routes[0].account == "work"
    assert keys.keys == ()


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize(
    "command",
    [ListKeys(), RevokeKey(id="k"), AddKey(name="desk")],
    ids=["reads", "revokes", "adds"],
)
def test_a_turnlane_that_is_too_slow_is_named_and_its_command_is_not_repeated(
    command: Request[object], held: bool, tmp_path: Path, snapshot: Snapshot
) -> None:
    done = threading.Event()
    with ExitStack() as around:
        if held:
            around.enter_context(locked(tmp_path))
        around.enter_context(listening(tmp_path, lambda _: assert_set(done)))
        with pytest.raises(NoAnswer) as raised:
            ask_about_keys(tmp_path, command, seconds=0.05)
        done.set()

    assert (f"`kill -9 {os.getpid()}`" in str(raised.value)) is held
    assert len(KeyRing(tmp_path)) == 0
    snapshot("errors", raised.value, home=tmp_path, pid=os.getpid())


def test_one_with_a_full_line_of_commands_hangs_too(tmp_path: Path) -> None:
    with ExitStack() as waiting, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / CONTROL_NAME))
        listener.listen(0)
        for _ in range(3):
            peer = waiting.enter_context(socket.socket(socket.AF_UNIX))
            peer.setblocking(False)
            peer.connect_ex(str(tmp_path / CONTROL_NAME))

        with pytest.raises(NoAnswer):
            ask(tmp_path, ListKeys(), 0.05)


def assert_set(event: threading.Event) -> None:
    assert event.wait(5)
