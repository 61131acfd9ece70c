"""AccountPool: what is previewed is what is chosen, and what a claim takes it gives back."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.accounts.account import Account
from proxy.accounts.bindings import Bindings, ThreadName
from proxy.accounts.claim import AccountRequest
from proxy.accounts.health import AccountHealth
from proxy.accounts.persistence import AccountStore, open_shelf
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.route import Route, RoutingSettings, Withheld
from proxy.accounts.verdict import HICCUP, NEUTRAL, SERVED, UNREACHABLE, Kind, Verdict
from proxy.accounts.view import AccountId
from tests.testkit.accounts import FakeCredential, account, report
from tests.testkit.runtime import WALL, Bench
from tests.testkit.upstream import answer

QUOTA = Verdict(kind=Kind.QUOTA, retry_at=None)
VERDICTS = [SERVED, NEUTRAL, HICCUP, UNREACHABLE, QUOTA, Verdict(kind=Kind.THROTTLED)]


@dataclass
class Clock:
    now: float = WALL

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A pool, and everything that can happen to it."""

    affinity: bool
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.accounts = [account(name) for name in "abc"]
        self.pool = AccountPool(
            self.accounts, RoutingSettings(cache_affinity=self.affinity), self.clock
        )

    def turn(self, asked: AccountRequest, verdict: Verdict) -> tuple[object, object, object]:
        """Two previews, and what was chosen after them."""
        first, second = self.pool.preview(asked), self.pool.preview(asked)
        with self.pool.claim(asked) as claim:
            if isinstance(claim, Withheld):
                return first, second, claim
            chosen = claim.route
            if verdict is SERVED:
                claim.answering()
            claim.note(verdict)
        return first, second, chosen


names = st.sampled_from(["one", "two", "three"]).map(ThreadName)
askings = st.builds(
    AccountRequest,
    thread=st.none() | names,
    parent=st.none() | names,
    model=st.sampled_from(["gpt-5.5", "gpt-6-sol", None]),
)
steps = st.one_of(
    st.tuples(st.just("turn"), askings, st.sampled_from(VERDICTS)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 700.0, 90_000.0]), st.none()),
    st.tuples(st.just("used"), st.integers(0, 2), st.floats(0, 100)),
    st.tuples(st.just("pause"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("replace"), st.integers(0, 2), st.text(min_size=1, max_size=3)),
)


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.lists(steps, max_size=40))
async def test_what_is_previewed_is_what_is_chosen(affinity: bool, happening: list[Any]) -> None:
    world = World(affinity)
    for what, which, how in happening:
        match what:
            case "turn":
                first, second, chosen = world.turn(which, how)
                assert first == second == chosen
            case "wait":
                world.clock.now += which
            case "used":
                report(world.accounts[which], how, now=world.clock.now)
            case "pause":
                world.pool.pause(world.accounts[which].id, paused=how)
            case "replace":
                world.accounts[which].state.adopt(how)

    assert [each.in_flight for each in world.accounts] == [0, 0, 0]
    assert not any(
        cooldown.probing for each in world.pool.views() for cooldown in each.trouble.values()
    )


async def test_a_claim_is_given_back_whatever_ends_it() -> None:
    only = account("a")
    asked = AccountRequest(thread=ThreadName("thread"), model="gpt-5.5")
    only.state.note(Verdict(kind=Kind.QUOTA, retry_at=WALL + 3600), asked.family, WALL, WALL)
    pool = AccountPool([only], RoutingSettings(), Clock(WALL + 300))

    def fail() -> None:
        with pool.claim(asked) as claim:
            assert not isinstance(claim, Withheld)
            assert claim.route.probe
            seen.append((only.in_flight, only.view().may_probe(asked.family, WALL + 300)))
            raise ZeroDivisionError

    seen: list[tuple[int, bool]] = []
    with pytest.raises(ZeroDivisionError):
        fail()

    assert seen == [(1, False)]
    assert only.in_flight == 0
    assert only.view().may_probe(asked.family, WALL + 300)


async def test_a_binding_that_began_with_a_failure_is_none() -> None:
    pool = AccountPool([account("a"), account("b")], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"))
    with pool.claim(asked) as claim:
        assert not isinstance(claim, Withheld)
        claim.note(HICCUP)

    preview = pool.preview(asked)

    assert isinstance(preview, Route)
    assert preview.move == "new"


async def test_a_binding_that_was_there_survives_a_failure() -> None:
    pool = AccountPool([account("a"), account("b")], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"))
    for verdict in (SERVED, HICCUP):
        with pool.claim(asked) as claim:
            assert not isinstance(claim, Withheld)
            claim.note(verdict)

    preview = pool.preview(asked)

    assert isinstance(preview, Route)
    assert (preview.account, preview.move) == ("a", "reused")


async def test_there_are_not_more_accounts_than_can_be_looked_at() -> None:
    pool = AccountPool([account(f"a{x}") for x in range(MOST_ACCOUNTS)], RoutingSettings(), Clock())
    pool.add(account("a0"))

    with pytest.raises(ValueError, match="64 accounts already"):
        pool.add(account("one-more"))


async def test_an_account_that_is_not_there_can_be_neither_paused_nor_removed() -> None:
    pool = AccountPool([account("a")], RoutingSettings(), Clock())

    assert pool.pause(AccountId("b"), paused=True) is False
    assert pool.remove(AccountId("b")) is False


async def test_what_changes_is_written_down_at_once(tmp_path: Path, nursery: trio.Nursery) -> None:
    login = FakeCredential("a")
    pool = AccountPool([account("a", 12, credential=login)], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"), model="gpt-5.5")
    with closing(open_shelf(tmp_path)) as shelf, closing(open_shelf(tmp_path)) as reader:
        async with trio.open_nursery() as writing:
            writing.start_soon(pool.scribe.write, shelf)
            pool.pause(AccountId("a"), paused=True)
            with pool.claim(asked):
                pass
            pool.pause(AccountId("a"), paused=False)
            with pool.claim(asked) as claim, trio.fail_after(5):
                assert not isinstance(claim, Withheld)
                while not (reader.bindings() and reader.lasting()):
                    await trio.lowlevel.checkpoint()
            writing.cancel_scope.cancel()
        found = Bindings(reader.bindings()).get(asked.key)
        known = reader.lasting()[AccountId("a")]

    again = Account(AccountId("a"), account("a").spec, login, AccountHealth(known))
    assert found is not None
    assert found.account == "a"
    assert again.view().score(WALL) == 12


async def test_what_was_flushed_is_written_to_no_more(tmp_path: Path) -> None:
    pool = AccountPool([account("a")], RoutingSettings(), Clock())
    first, second = (
        AccountRequest(thread=ThreadName(name), model="m") for name in ("first", "second")
    )
    with closing(open_shelf(tmp_path)) as shelf:
        with pool.claim(first):
            pass
        pool.scribe.flush(shelf)
        with pool.claim(second):
            pass
        pool.scribe.flush(shelf)

        assert [key for key, _ in shelf.bindings()] == [first.key]


@dataclass
class Unwritable:
    """A disk that is full for the first write."""

    shelf: AccountStore
    full: bool = True

    def write(self, *changes: Any) -> None:
        if self.full:
            self.full = False
            raise sqlite3.OperationalError("database or disk is full")
        self.shelf.write(*changes)


async def test_what_cannot_be_written_costs_no_turn_and_goes_with_the_next(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    pool = AccountPool([account("a")], RoutingSettings(), Clock())
    with closing(open_shelf(tmp_path)) as shelf:
        full: Any = Unwritable(shelf)
        async with trio.open_nursery() as writing:
            writing.start_soon(pool.scribe.write, full)
            with pool.claim(AccountRequest(thread=ThreadName("one"))):
                pass
            with trio.fail_after(5):
                while full.full:
                    await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
            writing.cancel_scope.cancel()
        with pool.claim(AccountRequest(thread=ThreadName("two"))):
            pass
        pool.scribe.flush(shelf)

        assert sorted(key[0] for key, _ in shelf.bindings()) == ["one", "two"]
    assert "1 bindings are not written down: database or disk is full" in caplog.text


@dataclass
class Slow:
    """A disk that takes its time."""

    shelf: AccountStore
    go: threading.Event = field(default_factory=threading.Event)

    def write(self, *changes: Any) -> None:
        assert self.go.wait(5)
        self.shelf.write(*changes)


async def test_whoever_waits_for_a_binding_finds_it_on_disk(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    pool = AccountPool([account("a")], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"))
    found: list[int] = []
    with closing(open_shelf(tmp_path)) as shelf:
        slow: Any = Slow(shelf)

        async def wait() -> None:
            await pool.scribe.wait_written(asked.key)
            found.append(len(shelf.bindings()))

        async with trio.open_nursery() as writing:
            writing.start_soon(pool.scribe.write, slow)
            await trio.testing.wait_all_tasks_blocked()
            with pool.claim(asked):
                pass
            async with trio.open_nursery() as waiting:
                waiting.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                early = list(found)
                slow.go.set()
            writing.cancel_scope.cancel()

    assert (early, found) == ([], [1])


async def test_a_client_hears_of_the_end_when_its_new_binding_is_on_disk(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    bench = Bench(nursery, answer(), accounts=[account("a")])
    with closing(open_shelf(tmp_path)) as shelf:
        slow: Any = Slow(shelf)
        async with trio.open_nursery() as writing:
            writing.start_soon(bench.runtime.accounts.scribe.write, slow)
            client = bench.post()
            await client.wait_for("response.output_text.delta")
            await trio.testing.wait_all_tasks_blocked()
            early = list(client.types)
            slow.go.set()
            await client.wait_for("response.completed")
            bound = len(shelf.bindings())
            writing.cancel_scope.cancel()

    assert "response.completed" not in early
    assert bound == 1


async def test_where_nobody_writes_nobody_waits() -> None:
    pool = AccountPool([account("a")], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"))
    with pool.claim(asked), trio.fail_after(0.1):
        await pool.scribe.wait_written(asked.key)
        await pool.scribe.wait_written(None)
