"""AccountPool: what is previewed is what is chosen, and what a claim takes it gives back."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.accounts.account import Account
from proxy.accounts.bindings import IssuedKind, ThreadName
from proxy.accounts.claim import AccountRequest, Claim, Shown
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.pool import MOST_ACCOUNTS, AccountPool
from proxy.accounts.route import Route, RoutingSettings, Withheld
from proxy.accounts.verdict import HICCUP, NEUTRAL, SERVED, UNREACHABLE, Kind, Verdict
from tests.testkit.accounts import FakeCredential, account, report
from tests.testkit.runtime import WALL

QUOTA = Verdict(kind=Kind.QUOTA, retry_at=None)
VERDICTS = [SERVED, NEUTRAL, HICCUP, UNREACHABLE, QUOTA, Verdict(kind=Kind.THROTTLED)]
THREAD = ThreadName("thread")


@dataclass
class Clock:
    now: float = WALL

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A pool, and everything that can happen to it."""

    accounts: Sequence[Account] = field(default_factory=lambda: [account(name) for name in "abc"])
    settings: RoutingSettings = field(default_factory=RoutingSettings)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.pool = AccountPool(self.accounts, self.settings, self.clock)

    def turn(self, asked: AccountRequest, verdict: Verdict = SERVED) -> Route | Withheld:
        with self.pool.claim(asked) as claim:
            if isinstance(claim, Withheld):
                return claim
            if verdict is SERVED:
                claim.answering(())
            claim.settle(Shown(verdict=verdict))
        return claim.route

    def served(self, thread: str, **asked: Any) -> tuple[str, str]:
        """The account that a turn of a thread is served by, and why."""
        decided = self.turn(AccountRequest(thread=ThreadName(thread), **asked))
        assert isinstance(decided, Route)
        return decided.account, decided.reason


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
    world = World(settings=RoutingSettings(cache_affinity=affinity))
    for what, which, how in happening:
        match what:
            case "turn":
                previews = [world.pool.preview(which) for _ in range(2)]
                assert previews == [world.turn(which, how)] * 2
            case "wait":
                world.clock.now += which
            case "used":
                report(world.accounts[which], how, now=world.clock.now)
            case "pause":
                world.pool.pause(world.accounts[which].id, paused=how)
            case "replace":
                world.accounts[which].health.adopt(how)

    assert [each.in_flight for each in world.accounts] == [0, 0, 0]
    assert not any(
        cooldown.probing for each in world.pool.views() for cooldown in each.trouble.values()
    )


def test_a_burst_of_claims_spreads_before_any_has_been_answered() -> None:
    world = World([account(name, used) for name, used in zip("abcd", (3, 1, 2, 0), strict=True)])
    placed = Counter[str]()
    with ExitStack() as running:
        for number in range(32):
            asked = AccountRequest(thread=ThreadName(f"thread {number}"))
            claim = running.enter_context(world.pool.claim(asked))
            assert isinstance(claim, Claim)
            placed[claim.account.id] += 1

    assert placed == dict.fromkeys("abcd", 8)
    assert [each.in_flight for each in world.accounts] == [0] * 4


def test_one_off_children_stay_with_their_conversation() -> None:
    pool = [account("a", 20), account("b", 10), account("c", 15)]
    world = World(pool)
    root = world.served("root")
    report(pool[1], 50)
    placed = Counter[tuple[str, str]]()
    for number in range(200):
        world.clock.now += 20
        placed[world.served(f"child {number}", parent=ThreadName("root"))] += 1

    assert root == ("b", "strategy")
    assert placed == {("b", "parent"): 200}


def test_a_child_follows_its_sibling_when_the_account_of_their_parent_is_hot() -> None:
    pool = [account("a", 20), account("b", 10), account("c", 15)]
    world = World(pool)
    root = world.served("root")
    report(pool[1], 90)
    first = world.served("child 1", parent=ThreadName("root"))
    report(pool[2], 50)

    second = world.served("child 2", parent=ThreadName("root"))

    assert [root, first, second] == [("b", "strategy"), ("c", "strategy"), ("c", "sibling")]


def test_two_models_of_one_thread_keep_an_account_each_however_they_alternate() -> None:
    pool = [account("a", 50), account("b", 10)]
    world = World(pool, settings=RoutingSettings(strategy="round_robin"))
    models = ["gpt-5.5", "gpt-6-sol"] * 4

    assert [world.served("thread", model=model)[0] for model in models] == ["a", "b"] * 4


def test_a_claim_is_given_back_whatever_ends_it() -> None:
    only = account("a")
    asked = AccountRequest(thread=THREAD, model="gpt-5.5")
    only.health.note(Verdict(kind=Kind.QUOTA, retry_at=WALL + 3600), asked.family, WALL, WALL)
    world = World([only], clock=Clock(WALL + 300))

    def fail() -> None:
        with world.pool.claim(asked) as claim:
            assert isinstance(claim, Claim)
            assert claim.route.probe
            seen.append((only.in_flight, only.view().may_probe(asked.family, WALL + 300)))
            raise ZeroDivisionError

    seen: list[tuple[int, bool]] = []
    with pytest.raises(ZeroDivisionError):
        fail()

    assert seen == [(1, False)]
    assert only.in_flight == 0
    assert only.view().may_probe(asked.family, WALL + 300)


@pytest.mark.parametrize(
    ("verdicts", "move"), [([HICCUP], "new"), ([SERVED, HICCUP], "reused")], ids=["new", "bound"]
)
def test_no_binding_begins_with_a_failure_and_none_ends_with_one(
    verdicts: list[Verdict], move: str
) -> None:
    world = World()
    asked = AccountRequest(thread=THREAD)
    for verdict in verdicts:
        world.turn(asked, verdict)

    preview = world.pool.preview(asked)

    assert isinstance(preview, Route)
    assert preview.move == move


def test_a_pool_its_accounts_and_claims_show_what_is_under_way() -> None:
    world = World([account("a"), account("b")])
    with world.pool.claim(AccountRequest(thread=THREAD)) as claim:
        world.clock.now += 2
        seen = (repr(claim), repr(world.pool), repr(world.accounts[0]))

    assert seen == (
        "<Claim a new (strategy) 2.0 s>",
        "<AccountPool ['a', 'b'] 1 attempts, 1 bound>",
        "<Account a api_key, 1 attempts>",
    )


def test_the_number_of_accounts_is_bounded() -> None:
    pool = World([account(f"a{x}") for x in range(MOST_ACCOUNTS)]).pool
    pool.add(account("a0"))

    with pytest.raises(ValueError, match="64 accounts"):
        pool.add(account("one-more"))


async def test_a_binding_whose_credential_cannot_be_had_is_none() -> None:
    login = FakeCredential("a")
    login.will.append(CredentialFailure(final=False, message="no auth server", retry_seconds=5))
    world = World([account("a", credential=login), account("b")])
    with world.pool.claim(AccountRequest(thread=THREAD)) as claim:
        assert isinstance(claim, Claim)
        await claim.headers()

    assert world.served(THREAD) == ("b", "strategy")


def believed(world: World, name: str, *, keyed: bool) -> list[bool]:
    """Whether an account that has issued "mine" may be sent a response id and a turn state."""
    asked = AccountRequest(thread=THREAD, keyed=keyed)
    for _ in range(2):
        with world.pool.claim(asked) as claim:
            assert isinstance(claim, Claim)
            found = [claim.may_have(kind, name) for kind in IssuedKind]
            claim.answering([(b"x-codex-turn-state", b"mine")])
            claim.settle(Shown(verdict=SERVED, response_id="mine"))
    return found


def test_a_value_of_unknown_origin_is_believed_only_where_there_is_one_principal() -> None:
    assert believed(World(), "unknown", keyed=False) == [True, True]
    assert believed(World(), "unknown", keyed=True) == [False, False]
    assert believed(World(), "mine", keyed=True) == [True, True]


def test_what_a_removed_account_issued_and_served_is_forgotten() -> None:
    world = World()
    believed(world, "mine", keyed=False)
    world.served("first child", parent=THREAD)
    world.pool.remove(world.accounts[0].id)
    world.pool.add(account("a", 50))

    preview = world.pool.preview(
        AccountRequest(thread=ThreadName("child"), parent=THREAD, previous_response_id="mine")
    )

    assert isinstance(preview, Route)
    assert (preview.account, preview.reason) == ("b", "strategy")
