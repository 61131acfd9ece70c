"""The rule on any state: what never happens to a thread, whatever is known of the accounts."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.route import (
    Binding,
    Move,
    MoveReason,
    Route,
    RouteMemory,
    RouteRequest,
    RoutingSettings,
    Withheld,
)
from proxy.accounts.routing import route
from proxy.accounts.view import (
    ANY,
    SPENT_PERCENT,
    AccountId,
    AccountView,
    Cooldown,
    Family,
    Standing,
    Window,
)
from tests.testkit.accounts import CACHE_FIRST, CAPACITY_FIRST, MODEL, NOW, OTHER_MODEL, view

NAMES = [AccountId(name) for name in "abcde"]
FAMILIES = [ANY, MODEL, OTHER_MODEL]
OUT_OF_USE = {Standing.PAUSED, Standing.PLAN, Standing.SPENT, Standing.INVALID}

moments = st.floats(NOW - 1000, NOW + 1000)
names = st.sampled_from(NAMES)
cooldowns = st.builds(
    Cooldown, since=st.just(NOW), until=moments, probe_at=moments, probing=st.booleans()
)
by_family = st.dictionaries(st.sampled_from(FAMILIES), cooldowns, max_size=2)
windows = st.builds(
    Window,
    name=st.just("w"),
    used_percent=st.floats(0, 120),
    resets_at=st.floats(NOW - 9, NOW + 99),
)
accounts = st.builds(
    AccountView,
    id=st.just(AccountId("")),
    generation=st.integers(1, 2),
    windows=st.lists(windows, max_size=2).map(tuple),
    credits=st.booleans(),
    paused=st.sampled_from([False, False, False, True]),
    models=st.sampled_from([None, None, ("gpt-4*",), ("gpt-5", "gpt-4")]),
    invalid=st.none() | cooldowns,
    spent=by_family,
    trouble=by_family,
)
pools = st.lists(accounts, max_size=len(NAMES)).map(
    lambda each: [replace(one, id=NAMES[number]) for number, one in enumerate(each)]
)
bindings = st.builds(
    Binding,
    account=names,
    generation=st.integers(1, 2),
    used_at=st.floats(NOW - 90_000, NOW),
    scored_at=st.floats(NOW - 90, NOW),
    held_since=st.none() | st.floats(NOW - 900, NOW),
    detour=st.none() | names,
)
memories = st.builds(
    RouteMemory,
    binding=st.none() | bindings,
    parent=st.none() | names,
    sibling=st.none() | names,
    cursor=st.none() | names,
    in_flight=st.dictionaries(names, st.integers(0, 9)),
)
wishes = st.builds(
    RouteRequest, family=st.sampled_from(FAMILIES), bound=st.booleans(), anchor=st.none() | names
)
settings = st.builds(
    RoutingSettings,
    cache_affinity=st.booleans(),
    strategy=st.sampled_from(["quota", "round_robin", "fill_first", "reset_first"]),
)
excluded = st.frozensets(names, max_size=2)
anything = given(views=pools, wish=wishes, memory=memories, told=settings, out=excluded)


def standing(views: Sequence[AccountView], account: AccountId, family: Family) -> Standing:
    return _named(views, account).standing(family, NOW)


def _named(views: Sequence[AccountView], account: AccountId) -> AccountView:
    return next(each for each in views if each.id == account)


@anything
def test_it_changes_nothing_and_says_the_same_again(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    before = copy.deepcopy((views, memory))
    preview = route(views, wish, memory, told, NOW, out)

    assert (views, memory) == before
    assert route(*copy.deepcopy((views, wish, memory, told)), NOW, out) == preview


@anything
def test_an_account_out_of_use_serves_only_a_probe(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    decided = route(views, wish, memory, told, NOW, out)

    if isinstance(decided, Route):
        at = standing(views, decided.account, wish.family)
        assert at not in {Standing.PAUSED, Standing.PLAN}
        assert decided.probe or at not in OUT_OF_USE
        if decided.probe:
            assert at is not Standing.READY
            assert _named(views, decided.account).may_probe(wish.family, NOW)


@anything
def test_a_turn_is_withheld_only_when_no_account_is_of_any_use(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    decided = route(views, wish, memory, told, NOW, out)
    usable = [each for each in views if each.standing(wish.family, NOW) not in OUT_OF_USE]

    assert isinstance(decided, Route) or not usable
    if isinstance(decided, Withheld):
        assert decided.retry_at is None or decided.retry_at > NOW
        assert not decided.spent or decided.retry_at is not None
        assert (decided.move is Move.CLEARED) is (memory.binding is not None)


@anything
def test_a_healthy_bound_thread_stays_with_cache_affinity(**state: Any) -> None:
    views, wish, memory, told, _ = state.values()
    home = memory.binding
    decided = route(views, wish, memory, replace(told, cache_affinity=True), NOW)
    live = home is not None and NOW - home.used_at < told.idle_seconds

    for each in views:
        if home is not None and (each.id, each.generation) == (home.account, home.generation):
            healthy = each.standing(wish.family, NOW) is Standing.READY
            if live and healthy:
                assert isinstance(decided, Route)
                assert (decided.account, decided.move) == (home.account, Move.REUSED)


@anything
def test_a_live_binding_moves_only_to_headroom_and_strictly_down(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    decided = route(views, wish, memory, told, NOW, out)

    if isinstance(decided, Route) and decided.reason is MoveReason.CAPACITY:
        assert memory.binding is not None
        assert not told.cache_affinity
        before = _named(views, memory.binding.account).score(NOW)
        after = _named(views, decided.account).score(NOW)
        assert after < told.auto_switch_threshold <= before


@anything
def test_trouble_of_the_home_never_ends_its_binding_within_the_hold(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    home = memory.binding
    decided = route(views, replace(wish, bound=True), memory, told, NOW, out)

    for each in views:
        if home is not None and (each.id, each.generation) == (home.account, home.generation):
            troubled = each.standing(wish.family, NOW) is Standing.TROUBLED
            young = NOW - (home.held_since or NOW) < told.hold_seconds
            if troubled and young and NOW - home.used_at < told.idle_seconds:
                assert isinstance(decided, Route)
                assert decided.binding is not None
                assert decided.binding.account == home.account


@anything
def test_only_a_bound_wish_is_remembered_and_as_it_was_served(**state: Any) -> None:
    views, wish, memory, told, out = state.values()
    decided = route(views, wish, memory, told, NOW, out)

    if isinstance(decided, Route):
        assert (decided.binding is not None) is wish.bound
        if decided.binding is not None:
            assert decided.binding.used_at == NOW
            if decided.move in (Move.NEW, Move.REBOUND, Move.REUSED):
                assert decided.binding.account == decided.account


# While usage only rises.

rises = st.lists(
    st.tuples(st.integers(0, 4), st.floats(0, 30), st.floats(0, 90)), min_size=1, max_size=60
)
starts = st.lists(st.floats(0, 99), min_size=2, max_size=5)


def times_moved(
    start: list[float], steps: list[tuple[int, float, float]], told: RoutingSettings, most: float
) -> int:
    """How often one thread moves; each step raises one account and lets some seconds pass."""
    used = dict(zip(NAMES, start, strict=False))
    kept: Binding | None = None
    served: list[AccountId] = []
    now = NOW
    for number, rise, seconds in steps:
        now += seconds
        raised = NAMES[number % len(start)]
        used[raised] = min(most, used[raised] + rise)
        views = [view(name, percent) for name, percent in used.items()]
        decided = route(views, RouteRequest(family=MODEL), RouteMemory(binding=kept), told, now)
        if isinstance(decided, Withheld):
            break
        kept = decided.binding
        served.append(decided.account)
    return sum(one != other for one, other in pairwise(served))


@pytest.mark.parametrize(
    ("told", "most"),
    [(CACHE_FIRST, SPENT_PERCENT), (CAPACITY_FIRST, SPENT_PERCENT - 0.1)],
    ids=["cache first", "capacity first"],
)
@given(start=starts, steps=rises)
def test_while_usage_rises_a_thread_moves_less_often_than_there_are_accounts(
    told: RoutingSettings, most: float, start: list[float], steps: list[tuple[int, float, float]]
) -> None:
    assert times_moved(start, steps, told, most) <= len(start) - 1


@given(start=starts, steps=rises)
def test_while_usage_rises_below_the_end_cache_affinity_moves_no_thread(
    start: list[float], steps: list[tuple[int, float, float]]
) -> None:
    assert times_moved(start, steps, CACHE_FIRST, 99.9) == 0
