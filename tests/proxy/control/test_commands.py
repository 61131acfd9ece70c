"""Control: an operator's commands, carried out on a running process's objects or on its home."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from lifecycle import Ask, PrincipalId, RootId, ThreadId
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.route import RoutingSettings
from proxy.accounts.spec import AccountSpec
from proxy.accounts.view import AccountId
from proxy.config.load import Config
from proxy.control.client import NoAnswer, NotRunning, ask
from proxy.control.commands import about_keys, answer
from proxy.control.offline import ask_about_accounts, ask_about_keys
from proxy.errors import ConfigError
from proxy.home.lock import CONTROL_NAME, locked
from proxy.journal.record import Outcome
from proxy.keys import KeyRing
from proxy.runtime import Runtime
from tests.proxy.ingress.runtimes import WALL, runtime
from tests.testkit.accounts import account
from tests.testkit.home import remembered
from tests.testkit.upstream import JSON, FakeUpstream, Script

ROOT = RootId("ab" * 16)
OTHER = RootId("ac" * 16)


def paid_by(root: RootId) -> Ask:
    return Ask(principal=PrincipalId("local"), root=root, thread=ThreadId(root))


@pytest.fixture
async def running(autojump_clock: MockClock, tmp_path: Path) -> Runtime:
    """Two roots are known: one send each, and no turn any more."""
    running = replace(runtime(), keys=KeyRing(tmp_path))
    for root in (ROOT, OTHER):
        async with running.admission.lease(paid_by(root)) as lease:
            lease.sent()
    return running


async def test_the_roots_are_listed_as_digests_and_that_is_recorded(running: Runtime) -> None:
    listed = (await answer(running, {"command": "workflows"}))["workflows"]

    assert [each["root"] for each in listed] == [ROOT, OTHER]
    assert listed[0] == {
        "root": ROOT,
        "active": 0,
        "workers": 0,
        "children": 0,
        "worker_sends": 0,
        "interactive_sends": 1,
        "refused": 0,
    }
    noted = running.journal.recent[-1]
    assert (noted.outcome, noted.principal, noted.transport) == (
        Outcome.LISTED,
        "operator",
        "control",
    )
    assert (noted.root, noted.wall) == (None, WALL)


@pytest.mark.parametrize("named", [ROOT, "ab"])
async def test_a_cleared_root_has_its_window_back_and_that_is_recorded(
    named: str, running: Runtime
) -> None:
    cleared = await answer(running, {"command": "workflows.clear", "root": named})

    assert cleared == {"cleared": ROOT}
    listed = (await answer(running, {"command": "workflows"}))["workflows"]
    assert [each["interactive_sends"] for each in listed] == [0, 1]
    noted = running.journal.recent[0]
    assert (noted.outcome, noted.root) == (Outcome.CLEARED, ROOT)


@pytest.mark.parametrize("named", ["", "a", "ff", ROOT + "0"])
async def test_a_root_that_is_not_one_is_not_cleared(named: str, running: Runtime) -> None:
    refused = await answer(running, {"command": "workflows.clear", "root": named})

    assert "tracked roots" in refused["error"]
    assert len(running.journal.recent) == 0


async def test_the_status_is_a_command_too(running: Runtime) -> None:
    assert (await answer(running, {"command": "status"}))["workflows"]["tracked"] == 2


async def test_keys_are_made_listed_and_revoked(running: Runtime) -> None:
    made = await answer(running, {"command": "keys.add", "name": "desk"})
    listed = (await answer(running, {"command": "keys.list"}))["keys"]
    key_id = made["key"]["id"]

    assert running.keys.holder(made["secret"]) == key_id
    assert listed == [made["key"]]
    assert set(made["key"]) == {"id", "name", "created"}
    revoked = await answer(running, {"command": "keys.revoke", "id": key_id})
    assert revoked == {"revoked": key_id, "left": 0}
    assert running.keys.holder(made["secret"]) is None


@pytest.mark.parametrize(
    "command",
    [
        {},
        {"command": None},
        {"command": "fly"},
        {"command": "keys.add"},
        {"command": "keys.add", "name": 1},
        {"command": "keys.add", "name": "\n"},
        {"command": "keys.revoke", "id": "key-0"},
        {"command": "workflows.clear"},
        {"command": "accounts.test"},
        {"command": "accounts.fly"},
        {"command": "accounts.add", "name": "work"},
    ],
)
async def test_what_cannot_be_done_is_said(command: dict[str, Any], running: Runtime) -> None:
    assert set(await answer(running, command)) == {"error"}


async def test_a_disk_that_takes_no_key_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ring = KeyRing(tmp_path / "home")
    (tmp_path / "home").symlink_to(tmp_path / "file")

    assert set(about_keys(ring, {"command": "keys.add", "name": "desk"})) == {"error"}
    assert len(ring) == 0


# Accounts.


async def test_accounts_are_a_matter_of_the_process_that_runs(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    running = replace(runtime(), registry=AccountRegistry(tmp_path))
    secret = "sk-secret-one"
    added = await answer(running, {"command": "accounts.add", "name": "work", "secret": secret})
    listed = await answer(running, {"command": "accounts.list"})
    preview = await answer(running, {"command": "accounts.preview", "thread": "t"})
    shown = await answer(running, {"command": "status"})

    assert [each.id for each in running.accounts.all()] == ["work"]
    assert listed["accounts"] == [added["account"]] == shown["accounts"]
    assert preview["routes"][0]["account"] == "work"
    assert secret not in repr((added, listed, preview, shown))


async def test_what_is_done_to_an_account_is_recorded_and_a_look_is_not(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    pool = AccountPool([account("work")], RoutingSettings(), lambda: WALL)
    running = replace(runtime(), accounts=pool, registry=AccountRegistry(tmp_path))
    for command in ("accounts.pause", "accounts.list", "accounts.resume"):
        await answer(running, {"command": command, "name": "work"})
    await answer(running, {"command": "accounts.pause", "name": "nobody"})

    noted = [(x.outcome, x.account, x.reason) for x in running.journal.recent]
    assert noted == [
        (Outcome.CHANGED, "work", "accounts.pause"),
        (Outcome.CHANGED, "work", "accounts.resume"),
    ]


async def test_a_checkup_is_answered_with_what_was_seen(autojump_clock: MockClock) -> None:
    upstream = FakeUpstream()
    upstream.will(Script((b"{}",), headers=JSON))
    pool = AccountPool([account("work")], RoutingSettings(), lambda: WALL)
    running = replace(runtime(), accounts=pool, upstream=upstream)
    found = await answer(running, {"command": "accounts.test", "name": "work"})
    unknown = await answer(running, {"command": "accounts.test", "name": "other"})

    assert (found["credential"], found["usage"], found["detail"]) == ("good", False, "models: 200")
    assert found["account"]["id"] == "work"
    assert unknown == {"error": "there is no account other; there are work"}


async def test_an_account_that_is_removed_during_its_checkup_has_no_figures(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    upstream = FakeUpstream()
    upstream.will(Script((b"{}",), headers=JSON, before=(5.0,)))
    pool = AccountPool([account("work")], RoutingSettings(), lambda: WALL)
    running = replace(runtime(), accounts=pool, upstream=upstream)

    async def remove() -> None:
        await trio.sleep(1)
        pool.remove(AccountId("work"))

    nursery.start_soon(remove)
    found = await answer(running, {"command": "accounts.test", "name": "work"})

    assert (found["account"], found["credential"]) == (None, "good")


# Without a turnlane that runs.


def test_where_none_runs_keys_are_made_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = ask_about_keys(home, {"command": "keys.add", "name": "desk"})

    assert KeyRing(home).holder(made["secret"]) == made["key"]["id"]
    assert ask_about_keys(home, {"command": "keys.list"})["keys"] == [made["key"]]


def test_where_none_runs_accounts_are_changed_and_remembered_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def asked(command: str, **more: Any) -> dict[str, Any]:
        command = f"accounts.{command}"
        config = Config(home=home)
        return ask_about_accounts(home, {"command": command, **more}, lambda: config)

    asked("add", name="work", secret="sk-secret-one")
    asked("pause", name="work")
    paused = asked("list")["accounts"][0]["standing"]
    moved = asked("add", name="work", secret="sk-secret-other")["moved"]
    asked("remove", name="work")
    asked("add", name="work", secret="sk-secret-third")

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
    added = {"command": "accounts.add", "name": "work", "secret": "sk-secret-one"}
    ask_about_accounts(tmp_path, added, lambda: bare)
    spec = AccountSpec(key=f"file:{secret}")
    config = Config(home=tmp_path, accounts={AccountId("work"): spec})
    remove = {"command": "accounts.remove", "name": "work"}
    removed = ask_about_accounts(tmp_path, remove, lambda: config)

    assert "account work: config.toml's serves" in caplog.text
    assert (removed["configured"], removed["left"]) == (True, 1)


def test_where_none_runs_nothing_else_can_be_asked(tmp_path: Path) -> None:
    with pytest.raises(NotRunning):
        ask(tmp_path, {"command": "workflows"})


@contextmanager
def listening(home: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Something at a control socket, for one connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / CONTROL_NAME))
        listener.listen()

        def accept() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                serve(peer)

        thread = threading.Thread(target=accept)
        thread.start()
        yield
        thread.join()


def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    def in_pieces(peer: socket.socket) -> None:
        for piece in (b'{"a":', b"1", b"}\n"):
            peer.sendall(piece)

    with listening(tmp_path, in_pieces):
        assert ask(tmp_path, {"command": "x"}) == {"a": 1}


@pytest.mark.parametrize("half", [b"", b'{"a"'])
def test_one_that_ends_before_it_has_answered_does_not_run(half: bytes, tmp_path: Path) -> None:
    with listening(tmp_path, lambda peer: peer.sendall(half)), pytest.raises(NotRunning):
        ask(tmp_path, {"command": "x"})


def test_a_home_that_stays_held_is_left_alone_after_three_seconds(tmp_path: Path) -> None:
    pauses: list[float] = []
    with locked(tmp_path), pytest.raises(ConfigError, match="in use"):
        ask_about_keys(tmp_path, {"command": "keys.add", "name": "desk"}, pauses.append)

    assert len(KeyRing(tmp_path)) == 0
    assert 2.5 < sum(pauses) <= 3


def test_a_command_waits_for_the_one_before_it(tmp_path: Path) -> None:
    with ExitStack() as before:
        before.enter_context(locked(tmp_path))
        command = {"command": "keys.add", "name": "desk"}
        made = ask_about_keys(tmp_path, command, lambda _: before.close())

    assert len(KeyRing(tmp_path)) == 1
    assert set(made) == {"key", "secret"}


def test_who_only_reads_waits_for_nobody(tmp_path: Path) -> None:
    def asked(command: str, **more: str) -> dict[str, Any]:
        config = Config(home=tmp_path)
        return ask_about_accounts(
            tmp_path, {"command": command, **more}, lambda: config, lambda _: pytest.fail("waits")
        )

    asked("accounts.add", name="work", secret="sk-secret-one")
    with locked(tmp_path):
        listed = asked("accounts.list")
        previewed = asked("accounts.preview", thread="t")
        keys = ask_about_keys(tmp_path, {"command": "keys.list"}, lambda _: pytest.fail("waits"))

    assert [each["id"] for each in listed["accounts"]] == ["work"]
    assert previewed["routes"][0]["account"] == "work"
    assert (listed["running"], keys) == (False, {"keys": []})


def test_one_that_is_too_slow_is_not_said_to_be_away(tmp_path: Path) -> None:
    done = threading.Event()
    with listening(tmp_path, lambda _: assert_set(done)):
        with pytest.raises(NoAnswer, match=r"within 0\.05 s; it may still do"):
            ask(tmp_path, {"command": "x"}, 0.05)
        done.set()


def test_what_may_still_be_done_is_not_done_twice(tmp_path: Path) -> None:
    done = threading.Event()
    with listening(tmp_path, lambda _: assert_set(done)):
        command = {"command": "keys.add", "name": "desk"}
        answered = ask_about_keys(tmp_path, command, seconds=0.05)
        done.set()

    assert "may still do" in answered["error"]
    assert len(KeyRing(tmp_path)) == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [("keys.list", "within 0.05 s; if pid {pid} hangs"), ("keys.revoke", "do what was asked; if")],
)
def test_one_that_hangs_is_named_with_what_ends_it(
    command: str, expected: str, tmp_path: Path
) -> None:
    done = threading.Event()
    with locked(tmp_path), listening(tmp_path, lambda _: assert_set(done)):
        answered = ask_about_keys(tmp_path, {"command": command, "id": "k"}, seconds=0.05)
        done.set()

    assert expected.format(pid=os.getpid()) in answered["error"]
    assert f"`kill -9 {os.getpid()}` ends it" in answered["error"]


def test_one_with_a_full_line_of_commands_hangs_too(tmp_path: Path) -> None:
    with ExitStack() as waiting, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / CONTROL_NAME))
        listener.listen(0)
        for _ in range(3):
            peer = waiting.enter_context(socket.socket(socket.AF_UNIX))
            peer.setblocking(False)
            peer.connect_ex(str(tmp_path / CONTROL_NAME))

        with pytest.raises(NoAnswer):
            ask(tmp_path, {"command": "keys.list"}, 0.05)


def assert_set(event: threading.Event) -> None:
    assert event.wait(5)


def test_every_answer_is_json(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    made = about_keys(ring, {"command": "keys.add", "name": "desk"})

    assert msgspec.json.decode(msgspec.json.encode(made)) == made
