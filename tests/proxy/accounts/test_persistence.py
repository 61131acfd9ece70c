"""What is learnt of bindings and accounts outlives the process, however that ends."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.account import Account
from proxy.accounts.bindings import BindingKey, Bindings, ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.health import AccountHealth, PersistedHealth
from proxy.accounts.persistence import (
    OLD_NAME,
    PATIENCE_SECONDS,
    AccountStore,
    remember,
    statements,
)
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import Binding, RoutingSettings
from proxy.accounts.view import ANY, AccountId, Cooldown, Family, Window
from proxy.database import open_database
from proxy.database_file import DATABASE_NAME
from proxy.errors import ConfigError
from proxy.journal.store import newest
from tests.testkit.accounts import FakeCredential, account
from tests.testkit.home import SlowDatabase, journal, remembered, writing
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import answer

A, B = AccountId("a"), AccountId("b")
BOUND = Binding(account=A, generation=1, used_at=10.0)
HEALTH = PersistedHealth(
    windows=(Window(name="primary", used_percent=3, resets_at=5.0),),
    spent={ANY: Cooldown(since=1, until=2, probe_at=3)},
    fingerprint="print",
    generation=3,
)


def key(name: str) -> BindingKey:
    return ThreadName(name), Family("gpt-5.5")


def keep(home: Path, *changes: Any) -> None:
    with open_database(home) as database:
        remember(home, database)
        for bindings, accounts in changes:
            database.execute(statements(bindings, accounts))


@contextmanager
def slow(home: Path, store: AccountStore) -> Iterator[SlowDatabase]:
    with open_database(home) as made:
        remember(home, made)
    with closing(SlowDatabase(home / DATABASE_NAME)) as database:
        store.write_to(database)
        yield database


def bound(home: Path) -> list[BindingKey]:
    return [key for key, _ in remembered(home).bindings]


def pool_of(*accounts: Account) -> AccountPool:
    return AccountPool(accounts, RoutingSettings(), lambda: WALL)


# What is kept.


bindings_of = st.builds(
    Binding,
    account=st.sampled_from([A, B]),
    generation=st.integers(1, 5),
    used_at=st.floats(0, 1e10),
    scored_at=st.floats(0, 1e10),
    held_since=st.none() | st.floats(0, 1e10),
    detour=st.none() | st.just(B),
)


@given(st.dictionaries(st.text(max_size=8), bindings_of, max_size=5))
def test_a_restart_finds_what_was_written(
    tmp_path_factory: object, kept: dict[str, Binding]
) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    home = tmp_path_factory.mktemp("home")
    changes = [(key(name), binding) for name, binding in kept.items()]
    keep(home, (changes, []))

    assert dict(remembered(home).bindings) == dict(changes)


def test_what_is_gone_is_gone_and_accounts_are_remembered(tmp_path: Path) -> None:
    keep(
        tmp_path,
        ([(key("one"), BOUND), (key("two"), BOUND)], [(A, HEALTH), (B, HEALTH)]),
        ([(key("one"), None)], [(B, None)]),
    )

    assert remembered(tmp_path).bindings == [(key("two"), BOUND)]
    assert remembered(tmp_path).accounts == {A: HEALTH}


def test_the_most_recently_used_come_last_however_many_there_are(tmp_path: Path) -> None:
    rows = [(key(str(number)), replace(BOUND, used_at=number)) for number in range(2050)]
    keep(tmp_path, (rows, []))
    found = remembered(tmp_path).bindings

    assert len(found) == 2048
    assert [found[0][0], found[-1][0]] == [key("2"), key("2049")]


def test_what_cannot_be_read_of_an_account_is_forgotten(tmp_path: Path) -> None:
    keep(tmp_path)
    with open_database(tmp_path) as database:
        database.execute([("INSERT INTO accounts (id, lasting) VALUES (?, ?)", [("a", "{7}")])])

    assert remembered(tmp_path).accounts == {}


# The home of an older turnlane, with a database for accounts alone.


@pytest.fixture
def old(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """As version 0.1 left it, or a process of that version that still serves."""
    with closing(sqlite3.connect(tmp_path / OLD_NAME, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE bindings (thread, family, account, generation, used_at, scored_at, "
            "held_since, detour, PRIMARY KEY (thread, family))"
        )
        database.execute("CREATE TABLE accounts (id PRIMARY KEY, lasting)")
        row = ("one", "gpt-5.5", "a", 1, 10.0, 0.0, None, None)
        database.execute("INSERT INTO bindings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.execute("""INSERT INTO accounts VALUES ('a', '{"plan":"pro"}')""")
        yield database


def test_an_upgrade_keeps_bindings_accounts_and_the_journal(
    old: sqlite3.Connection, tmp_path: Path
) -> None:
    old.close()
    with journal(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as records:
        records.execute("DROP TABLE turns")
        columns = "wall, principal, transport, outcome"
        records.execute(f"CREATE TABLE turns (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns})")
        row = (WALL, "local", "http", "completed")
        records.execute(f"INSERT INTO turns ({columns}) VALUES (?, ?, ?, ?)", row)
    with journal(tmp_path) as database:
        found = remember(tmp_path, database)
    again = remembered(tmp_path)
    left = [path.name for path in tmp_path.iterdir()]

    assert found.bindings == again.bindings == [(key("one"), BOUND)]
    assert found.accounts == again.accounts == {A: PersistedHealth(plan="pro")}
    assert [record.wall for _, record in newest(tmp_path, 9)] == [WALL]
    assert left == [DATABASE_NAME]


def test_what_an_older_turnlane_still_writes_counts_until_the_home_is_ours(
    old: sqlite3.Connection, tmp_path: Path
) -> None:
    with open_database(tmp_path) as database:
        rehearsed = remember(tmp_path, database, reading=True)
    old.execute("UPDATE bindings SET account = 'b'")
    old.close()
    serving = remembered(tmp_path)

    assert dict(rehearsed.bindings)[key("one")].account == A
    assert dict(serving.bindings)[key("one")].account == B
    assert not (tmp_path / OLD_NAME).exists()


def test_an_old_database_that_cannot_be_read_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / OLD_NAME).write_bytes(b"no database" * 99)

    with pytest.raises(ConfigError, match=OLD_NAME):
        remembered(tmp_path)
    assert (tmp_path / OLD_NAME).exists()


# When it is written.


async def test_what_changes_is_written_at_once(tmp_path: Path) -> None:
    login = FakeCredential("a")
    pool = pool_of(account("a", 12, credential=login))
    asked = AccountRequest(thread=ThreadName("thread"), model="gpt-5.5")
    with open_database(tmp_path) as database:
        remember(tmp_path, database)
        pool.store.write_to(database)
        async with writing(database):
            with pool.claim(asked), trio.fail_after(5):
                pool.pause(A, paused=True)
                pool.pause(A, paused=False)
                while not bound_now(tmp_path):
                    await trio.lowlevel.checkpoint()
        found = remembered(tmp_path)

    binding = Bindings(found.bindings).get(asked.key)
    again = Account(A, account("a").spec, login, AccountHealth(found.accounts[A]))
    assert binding is not None
    assert binding.account == "a"
    assert again.view().score(WALL) == 12


async def test_what_cannot_be_written_costs_no_turn_and_goes_with_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_of(account("a"))
    with open_database(tmp_path) as database:
        remember(tmp_path, database)
        pool.store.write_to(database)
        with pool.claim(AccountRequest(thread=ThreadName("one"))):
            pass
        database.execute([("ALTER TABLE bindings RENAME TO away", [()])])
        database.flush()
        database.execute([("ALTER TABLE away RENAME TO bindings", [()])])
        with pool.claim(AccountRequest(thread=ThreadName("two"))):
            pass

    assert sorted(thread for thread, _ in bound(tmp_path)) == ["one", "two"]
    assert "not written yet: no such table" in caplog.text


async def test_while_the_disk_fails_no_turn_waits_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_of(account("a"))
    first, second = (AccountRequest(thread=ThreadName(name)) for name in ("first", "second"))
    with open_database(tmp_path) as database:
        remember(tmp_path, database)
        pool.store.write_to(database)
        async with writing(database):
            database.execute([("ALTER TABLE bindings RENAME TO away", [()])])
            with pool.claim(first):
                pass
            await pool.store.wait_written(first.key)
            with pool.claim(second):
                pass
            with trio.CancelScope() as scope:
                scope.cancel()
                await pool.store.wait_written(second.key)
        database.flush()
        database.execute([("ALTER TABLE away RENAME TO bindings", [()])])

    assert not scope.cancelled_caught
    assert caplog.text.count("not written yet") == 1
    assert len(bound(tmp_path)) == 2


async def test_after_the_home_is_passed_on_nothing_is_written(tmp_path: Path) -> None:
    pool = pool_of(account("a"))
    first, second = (AccountRequest(thread=ThreadName(name)) for name in ("first", "second"))
    with open_database(tmp_path) as database:
        remember(tmp_path, database)
        pool.store.write_to(database)
        with pool.claim(first):
            pass
        await pool.store.leave()
        with pool.claim(second):
            pass

    assert bound(tmp_path) == [first.key]


async def test_a_caller_that_waits_for_a_binding_finds_it_on_disk(tmp_path: Path) -> None:
    pool = pool_of(account("a"))
    asked = AccountRequest(thread=ThreadName("thread"))
    found: list[int] = []

    async def wait() -> None:
        await pool.store.wait_written(asked.key)
        found.append(len(bound_now(tmp_path)))

    with slow(tmp_path, pool.store) as database:
        async with writing(database):
            with pool.claim(asked):
                pass
            async with trio.open_nursery() as waiting:
                waiting.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                waiting.start_soon(wait)  # its write is under way
                await trio.testing.wait_all_tasks_blocked()
                early = list(found)
                database.go.set()

    assert (early, found) == ([], [1, 1])


async def test_a_disk_that_is_too_slow_is_waited_for_no_longer_than_half_a_second(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    pool = pool_of(account("a"))
    asked = AccountRequest(thread=ThreadName("thread"))
    with slow(tmp_path, pool.store) as database:
        async with writing(database):
            with pool.claim(asked):
                pass
            async with trio.open_nursery() as waiting:
                waiting.start_soon(pool.store.wait_written, asked.key)
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(PATIENCE_SECONDS)
            early = bound_now(tmp_path)
            database.go.set()

    assert early == []


def bound_now(home: Path) -> list[Any]:
    with closing(sqlite3.connect(home / DATABASE_NAME)) as reader:
        return reader.execute("SELECT * FROM bindings").fetchall()


async def test_a_client_hears_of_the_end_when_its_new_binding_is_on_disk(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    bench = Bench(nursery, answer(), accounts=[account("a")])
    with slow(tmp_path, bench.runtime.accounts.store) as database:
        async with writing(database):
            client = bench.post()
            await client.wait_for("response.output_text.delta")
            await trio.testing.wait_all_tasks_blocked()
            early = list(client.types)
            database.go.set()
            await client.wait_for("response.completed")
            kept = bound_now(tmp_path)

    assert "response.completed" not in early
    assert len(kept) == 1


async def test_where_no_writer_runs_no_turn_waits() -> None:
    pool = pool_of(account("a"))
    asked = AccountRequest(thread=ThreadName("thread"))
    with pool.claim(asked), trio.fail_after(0.1):
        await pool.store.wait_written(asked.key)
        await pool.store.wait_written(None)
