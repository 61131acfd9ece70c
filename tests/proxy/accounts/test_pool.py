"""AccountPool: what is previewed is what is chosen, and what a claim takes it gives back."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import AccountRequest, Shown
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.route import Route, RoutingSettings, Withheld
from proxy.accounts.verdict import HICCUP, NEUTRAL, SERVED, UNREACHABLE, Kind, Verdict
from tests.testkit.accounts import account, report
from tests.testkit.runtime import WALL

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
                claim.answering(())
            claim.settle(Shown(verdict=verdict))
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
        claim.settle(Shown(verdict=HICCUP))

    preview = pool.preview(asked)

    assert isinstance(preview, Route)
    assert preview.move == "new"


async def test_a_binding_that_was_there_survives_a_failure() -> None:
    pool = AccountPool([account("a"), account("b")], RoutingSettings(), Clock())
    asked = AccountRequest(thread=ThreadName("thread"))
    for verdict in (SERVED, HICCUP):
        with pool.claim(asked) as claim:
            assert not isinstance(claim, Withheld)
            claim.settle(Shown(verdict=verdict))

    preview = pool.preview(asked)

    assert isinstance(preview, Route)
    assert (preview.account, preview.move) == ("a", "reused")


async def test_a_pool_and_its_claims_show_what_is_under_way() -> None:
    clock = Clock()
    pool = AccountPool([account("a"), account("b")], RoutingSettings(), clock)
    with pool.claim(AccountRequest(thread=ThreadName("thread"))) as claim:
        clock.now += 2
        seen = (repr(claim), repr(pool))

    assert seen == (
        "<Claim a new (strategy) 2.0 s>",
        "<AccountPool ['a', 'b'] 1 attempts, 1 bound>",
    )


async def test_the_number_of_accounts_is_bounded() -> None:
    pool = AccountPool([account(f"a{x}") for x in range(MOST_ACCOUNTS)], RoutingSettings(), Clock())
    pool.add(account("a0"))

    with pytest.raises(ValueError, match="64 accounts"):
        pool.add(account("one-more"))
