"""The operator's commands, carried out on a running process's objects."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from lifecycle import Ask, PrincipalId, RootId, ThreadId
from proxy.accounts.pool import AccountPool
from proxy.accounts.registry import AccountRegistry
from proxy.accounts.route import RoutingSettings
from proxy.accounts.view import AccountId
from proxy.control.commands import AddKey
from proxy.control.keys import about_keys
from proxy.errors import CommandFailed
from proxy.journal.record import Outcome
from proxy.keys import KeyRing
from proxy.runtime import Runtime
from tests.proxy.control.wire import URL, answer
from tests.proxy.ingress.runtimes import WALL, runtime
from tests.testkit.accounts import account
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
    ("command", "problem"),
    [
        ({}, "command"),
        ({"command": None}, ""),
        ({"command": "fly"}, "'fly'"),
        ({"command": "keys.add"}, "`name`"),
        ({"command": "keys.add", "nmae": "x"}, "`nmae`"),
        ({"command": "keys.add", "name": 1}, "name"),
        ({"command": "keys.add", "name": "\n"}, "name"),
        ({"command": "keys.revoke", "id": "key-0"}, "key-0"),
        ({"command": "accounts.add", "name": "work"}, "`secret`"),
        ({"command": "status", "more": 1}, "`more`"),
    ],
)
async def test_a_command_that_cannot_be_carried_out_is_explained(
    command: dict[str, Any], problem: str, running: Runtime
) -> None:
    refused = await answer(running, command)

    assert set(refused) == {"error"}
    assert problem in refused["error"]


async def test_the_address_and_the_status_are_told(running: Runtime) -> None:
    assert await answer(running, {"command": "url"}) == {"url": URL, "upstream": None}
    assert (await answer(running, {"command": "status"}))["workflows"]["tracked"] == 2


async def test_a_key_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ring = KeyRing(tmp_path / "home")
    (tmp_path / "home").symlink_to(tmp_path / "file")

    with pytest.raises(CommandFailed):
        about_keys(ring, AddKey(name="desk"))

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
        await answer(
            running, {"command": command, **({} if "list" in command else {"name": "work"})}
        )
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
    assert set(unknown) == {"error"}


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
