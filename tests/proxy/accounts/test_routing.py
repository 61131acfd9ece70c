"""The rule by example: what keeps a thread, what releases it, the detours, and where it starts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.route import RouteMemory, RoutingSettings, Strategy
from proxy.accounts.view import AccountId, AccountView
from tests.testkit.accounts import (
    CACHE_FIRST,
    CAPACITY_FIRST,
    DAY,
    MODEL,
    NOW,
    OTHER_MODEL,
    RESET,
    A,
    B,
    C,
    D,
    binding,
    bound,
    found,
    invalid,
    said,
    spent,
    troubled,
    view,
    window,
    withheld,
)

RING = (A, B, C, D)
GONE = AccountId("gone")
STRATEGIES: tuple[Strategy, ...] = ("quota", "round_robin", "fill_first", "reset_first")


# A thread that is bound.


@pytest.mark.parametrize(
    ("settings", "home", "other", "moved"),
    [
        (CAPACITY_FIRST, 79.9, 0, False),
        (CAPACITY_FIRST, 80, 79.9, True),
        (CAPACITY_FIRST, 80, 80, False),
        (CAPACITY_FIRST, 99, 80, False),
        (CAPACITY_FIRST, 95, None, False),
        (CACHE_FIRST, 95, 40, False),
        (CACHE_FIRST, 99.9, None, False),
    ],
)
def test_only_with_capacity_first_a_thread_moves_from_above_the_threshold_to_below(
    settings: RoutingSettings, home: float, other: float | None, moved: bool
) -> None:
    decided = found([view("a", home), view("b", other), view("c", 97)], bound(), settings)

    assert (decided.account == B) is moved
    assert decided.account != C


def test_with_capacity_first_a_thread_is_scored_once_a_minute() -> None:
    views = [view("a", 95), view("b", 40)]
    early = found(views, bound(scored_at=NOW - 59), CAPACITY_FIRST)
    due = found(views, bound(scored_at=NOW - 60), CAPACITY_FIRST)
    in_vain = found([view("a", 95), view("b", 90)], bound(), CAPACITY_FIRST)

    assert said(early) == (A, "reused", "bound")
    assert said(due) == (B, "rebound", "capacity")
    assert due.binding == binding(B, scored_at=NOW, used_at=NOW)
    assert in_vain.binding == binding(scored_at=NOW, used_at=NOW)


@pytest.mark.parametrize(
    ("home", "kept", "why"),
    [
        (spent(), {}, "quota"),
        (spent(family=MODEL), {}, "quota"),
        ({"windows": (window(100),)}, {}, "quota"),
        ({"paused": True}, {}, "paused"),
        ({"models": ("gpt-4*",)}, {}, "plan"),
        (invalid(), {}, "credential"),
        ({"generation": 2}, {}, "replaced"),
        ({}, {"account": GONE}, "removed"),
        (troubled(), {"held_since": NOW - 600}, "hold_expired"),
    ],
)
def test_a_thread_is_released_by_what_its_account_cannot_do(
    home: dict[str, Any], kept: dict[str, Any], why: str
) -> None:
    decided = found([view("a", **home), view("b", 0)], bound(**kept))

    assert said(decided) == (B, "rebound", why)
    assert decided.binding == binding(B, used_at=NOW)


def test_a_thread_without_a_turn_for_a_day_is_a_new_one() -> None:
    views = [view("a", 50), view("b", 10)]

    assert said(found(views, bound(used_at=NOW - DAY))) == (B, "new", "idle")
    assert said(found(views, bound(used_at=NOW - DAY + 1))) == (A, "reused", "bound")


@pytest.mark.parametrize(
    ("home", "kept"),
    [
        ({}, {}),
        ({"windows": (window(99.9),)}, {}),
        ({"windows": (window(100),), "credits": True}, {}),
        ({"windows": ()}, {}),
        ({"windows": (window(100, NOW),)}, {}),
        (spent(family=OTHER_MODEL), {}),
        (spent(0), {}),
        ({"models": ("gpt-5*",)}, {}),
        ({"generation": 7}, {"generation": 7}),
    ],
    ids=str,
)
def test_a_thread_stays_while_its_account_serves(
    home: dict[str, Any], kept: dict[str, Any]
) -> None:
    decided = found([view("a", **home), view("b", 0)], bound(**kept))

    assert said(decided) == (A, "reused", "bound")
    assert decided.binding == binding(used_at=NOW, **kept)


# An account in trouble.


def test_trouble_ends_no_binding_and_the_detour_is_remembered() -> None:
    views = [view("a", **troubled()), view("b", 30), view("c", 20)]
    first = found(views, bound())
    cooler = [views[0], view("b", 5), view("c", 70)]
    second = found(cooler, RouteMemory(binding=first.binding), now=NOW + 1)

    assert said(first) == said(second) == (C, "detour", "trouble")
    assert first.binding == binding(used_at=NOW, held_since=NOW, detour=C)
    assert second.binding == binding(used_at=NOW + 1, held_since=NOW, detour=C)


def test_one_request_tries_the_way_home_and_the_others_make_their_detour() -> None:
    held = bound(held_since=NOW - 60, detour=B)
    due = found([view("a", **troubled(probe_at=NOW)), view("b")], held)
    tried = found([view("a", **troubled(probe_at=NOW, probing=True)), view("b")], held)

    assert (said(due), due.probe) == ((A, "held", "probe"), True)
    assert (said(tried), tried.probe) == ((B, "detour", "trouble"), False)


def test_a_thread_goes_home_when_the_trouble_is_over() -> None:
    decided = found([view("a"), view("b", 0)], bound(held_since=NOW - 3000, detour=B))

    assert said(decided) == (A, "reused", "bound")
    assert decided.binding == binding(used_at=NOW, detour=B)


def test_a_thread_whose_detour_is_in_trouble_too_finds_another() -> None:
    views = [view("a", **troubled()), view("b", **troubled()), view("c")]
    decided = found(views, bound(held_since=NOW - 60, detour=B))

    assert said(decided) == (C, "detour", "trouble")
    assert decided.binding == binding(used_at=NOW, held_since=NOW - 60, detour=C)


@pytest.mark.parametrize("others", [[], [view("b", **spent())], [view("b", paused=True)]])
@pytest.mark.parametrize("held_since", [None, NOW - 60, NOW - 6000])
def test_with_no_other_account_a_troubled_one_is_asked_all_the_same(
    others: list[AccountView], held_since: float | None
) -> None:
    decided = found([view("a", **troubled()), *others], bound(held_since=held_since))

    assert said(decided) == (A, "held", "alone")
    assert decided.binding == binding(used_at=NOW, held_since=held_since or NOW)


def test_a_new_thread_tries_an_account_in_trouble_that_it_would_start_on() -> None:
    due = view("a", 10, **troubled(probe_at=NOW))
    decided = found([due, view("b", 20)])

    assert (said(decided), decided.probe) == ((A, "new", "probe"), True)
    assert decided.binding == binding(A, used_at=NOW)
    assert said(found([due, view("b", 5)])) == (B, "new", "strategy")


@pytest.mark.parametrize(
    ("trouble", "memory", "excluded"),
    [
        (troubled(probe_at=NOW + 1), RouteMemory(), []),
        (troubled(probe_at=NOW, probing=True), RouteMemory(), []),
        (troubled(probe_at=NOW), RouteMemory(), [C]),
        (troubled(probe_at=NOW), bound(GONE), []),
        (spent(probe_at=NOW), RouteMemory(), []),
    ],
    ids=["not due", "tried by another", "no send to lose", "a cache to lose", "spent"],
)
def test_no_other_turn_tries_it_while_another_account_serves(
    trouble: dict[str, Any], memory: RouteMemory, excluded: list[AccountId]
) -> None:
    decided = found([view("a", 10, **trouble), view("b", 20)], memory, excluded=excluded)

    assert (decided.account, decided.probe) == (B, False)


def test_a_hold_that_expires_ends_where_the_thread_has_been_served_meanwhile() -> None:
    views = [view("a", **troubled()), view("b", 90), view("c", 10)]
    expired = found(views, bound(held_since=NOW - 600, detour=B))

    assert said(expired) == (B, "rebound", "hold_expired")
    colds: list[dict[str, Any]] = [{"used_at": NOW - 600}, {"held_since": None}]
    for cold in colds:
        kept = {"held_since": NOW - 600, "detour": B, **cold}
        assert found([view("a", **spent()), *views[1:]], bound(**kept)).account == C


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([view("b")], (B, "detour", "retry")),
        ([], (A, "held", "alone")),
        ([view("b", **troubled())], (B, "detour", "retry")),
        ([view("b", **spent())], (A, "held", "alone")),
        ([view("b", **troubled()), view("c", 90)], (C, "detour", "retry")),
    ],
)
def test_what_failed_in_this_turn_keeps_its_thread_and_is_asked_again_only_if_no_other_serves(
    others: list[AccountView], told: tuple[str, str, str]
) -> None:
    decided = found([view("a"), *others], bound(), excluded=[A])

    assert said(decided) == told
    assert decided.binding is not None
    assert (decided.binding.account, decided.binding.held_since) == (A, None)


# No account is ready.


def test_what_is_spent_may_be_tried_by_one_when_that_is_due() -> None:
    views = [view("a", **spent()), view("b", **spent(probe_at=NOW))]
    new, released = found(views), found(views, bound())
    home = found([view("a", **spent(probe_at=NOW)), view("b", **spent(probe_at=NOW))], bound(B))

    assert said(new) == (B, "new", "probe")
    assert said(released) == (B, "rebound", "probe")
    assert said(home) == (B, "held", "probe")
    assert new.probe
    assert released.probe
    assert home.probe
    assert withheld([views[1]], excluded=[B]).spent


def test_nothing_that_is_out_of_use_is_tried_while_another_serves() -> None:
    views = [view("a", **spent(probe_at=NOW)), view("b", 99)]

    assert said(found(views)) == (B, "new", "strategy")
    assert said(found([views[0], view("b", **troubled())])) == (B, "new", "alone")


@pytest.mark.parametrize(
    ("views", "is_spent", "retry_at", "why"),
    [
        ([], False, None, "removed"),
        ([view("a", paused=True)], False, None, "paused"),
        ([view("a", models=())], False, None, "plan"),
        ([view("a", **invalid(NOW + 30))], False, NOW + 30, "credential"),
        ([view("a", **invalid(NOW - 30, probing=True))], False, NOW + 1, "credential"),
        ([view("a", **spent(900)), view("b", windows=(window(100, NOW + 300),))], True, NOW + 300,
         "quota"),
        ([view("a", paused=True), view("b", **spent(90))], True, NOW + 90, "quota"),
        ([view("a", **invalid(NOW + 30)), view("b", **spent(90))], True, NOW + 90, "quota"),
        ([view("a", **invalid(NOW + 90)), view("b", **spent(30))], True, NOW + 30, "quota"),
        ([view("a", **spent(0.5))], True, NOW + 1, "quota"),
        ([view("a", windows=(window(100, RESET),))], True, RESET, "quota"),
    ],
)  # fmt: skip
def test_a_withheld_turn_learns_why_and_until_when(
    views: list[AccountView], is_spent: bool, retry_at: float | None, why: str
) -> None:
    decided = withheld(views)

    assert (decided.spent, decided.retry_at, decided.reason.value) == (is_spent, retry_at, why)
    assert sum(decided.standings.values()) == len(views)


# Where a thread starts: with its family.


@pytest.mark.parametrize(
    ("parent", "sibling", "used", "told"),
    [
        (A, B, (60, 70, 10), (A, "new", "parent")),
        (A, B, (80, 70, 10), (B, "new", "sibling")),
        (A, B, (80, 80, 10), (C, "new", "strategy")),
        (A, B, (90, 85, 80), (A, "new", "parent")),
        (None, B, (90, 85, 80), (B, "new", "sibling")),
        (A, None, (None, 85, 10), (A, "new", "parent")),
        (GONE, None, (60, 70, 10), (C, "new", "strategy")),
    ],
)
def test_a_child_starts_with_its_family_while_there_is_room(
    parent: AccountId | None,
    sibling: AccountId | None,
    used: tuple[float | None, ...],
    told: tuple[str, str, str],
) -> None:
    views = [view(name, each) for name, each in zip("abc", used, strict=True)]

    assert said(found(views, RouteMemory(parent=parent, sibling=sibling))) == told


@pytest.mark.parametrize("parent", [spent(), troubled()])
def test_a_child_does_not_follow_where_no_account_can_serve(parent: dict[str, Any]) -> None:
    memory = RouteMemory(parent=A, sibling=B)

    assert said(found([view("a", **parent), view("b")], memory)) == (B, "new", "sibling")


def test_what_a_request_continues_comes_before_family_and_room() -> None:
    views = [view("a", 10), view("b", 99)]
    spent_anchor = [view("a", 10), view("b", **spent())]

    assert said(found(views, RouteMemory(parent=A), anchor=B)) == (B, "new", "anchor")
    assert said(found(spent_anchor, RouteMemory(parent=A), anchor=B)) == (A, "new", "parent")


# Where a thread starts: by strategy.


def first(
    views: Sequence[AccountView], strategy: Strategy = "quota", cursor: AccountId | None = None
) -> AccountId:
    return found(views, RouteMemory(cursor=cursor), RoutingSettings(strategy=strategy)).account


def burst(views: Sequence[AccountView], count: int, strategy: Strategy = "quota") -> list[int]:
    """The shares of new sessions that start one after another, and none of them ends."""
    memory, placed = RouteMemory(), Counter[AccountId]()
    for _ in range(count):
        chosen = found(views, memory, RoutingSettings(strategy=strategy)).account
        placed[chosen] += 1
        memory = RouteMemory(cursor=chosen, in_flight=dict(placed))
    return [placed[each.id] for each in views]


def resetting(account: str, seconds: float, used: float = 10) -> AccountView:
    return view(account, windows=(window(used, NOW + seconds), window(0, RESET + 9e5, "week")))


@pytest.mark.parametrize(
    ("strategy", "cursor", "account"),
    [
        ("quota", None, C),
        ("quota", C, C),
        ("fill_first", None, A),
        ("fill_first", C, A),
        ("round_robin", None, A),
        ("round_robin", A, B),
        ("round_robin", B, C),
        ("round_robin", C, A),
        ("round_robin", GONE, A),
        ("reset_first", None, B),
        ("reset_first", B, B),
    ],
)
def test_each_strategy_has_its_own_first(
    strategy: Strategy, cursor: AccountId | None, account: AccountId
) -> None:
    views = [
        resetting("a", 3000, 40),
        resetting("b", 1000, 50),
        resetting("c", 2000, 30),
        resetting("d", 500, 80),
    ]

    assert first(views, strategy, cursor) == account


def test_a_window_that_has_reset_is_not_the_next_to_reset() -> None:
    views = [resetting("a", 100), resetting("b", -100), resetting("c", 200), view("d", None)]

    assert first(views, "reset_first") == A


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_headroom_anywhere_it_is_the_one_used_least(strategy: Strategy) -> None:
    assert first([view("a", 95), view("b", 80), view("c", 97)], strategy) == B


@pytest.mark.parametrize(
    ("running", "other", "account"),
    [
        ({}, 10.1, A),
        ({A: 2}, 20.1, A),
        ({A: 2}, 19.9, B),
        ({A: 3, B: 1}, 20.1, A),
        ({A: 3, B: 1}, 19.9, B),
    ],
)
def test_a_turn_in_flight_counts_as_five_points(
    running: dict[AccountId, int], other: float, account: AccountId
) -> None:
    memory = RouteMemory(in_flight=running)

    assert found([view("a", 10), view("b", other)], memory).account == account


def test_where_usage_is_equal_the_next_in_the_ring_is_first() -> None:
    views = [view(account, 10) for account in RING]

    assert [first(views, cursor=cursor) for cursor in RING] == [B, C, D, A]


def test_a_burst_goes_to_known_and_unknown_accounts_alike() -> None:
    views = [view("a", 20), view("b", None), view("c", 20), view("d", None)]

    assert burst(views, 32) == [8, 8, 8, 8]


@given(
    used=st.none() | st.floats(0, 99),
    accounts=st.integers(1, 6),
    count=st.integers(1, 40),
    strategy=st.sampled_from(["quota", "round_robin"]),
)
def test_a_burst_over_equal_accounts_spreads_within_one(
    used: float | None, accounts: int, count: int, strategy: Strategy
) -> None:
    shares = burst([view(each, used) for each in "abcdef"[:accounts]], count, strategy)

    assert max(shares) - min(shares) <= 1


def test_when_all_are_in_trouble_new_threads_spread_and_children_follow() -> None:
    views = [view(name, 50, **troubled()) for name in "abc"]

    assert burst(views, 6) == [2, 2, 2]
    assert said(found(views)) == (A, "new", "alone")
    assert found(views, RouteMemory(parent=C)).account == C
    assert found(views, RouteMemory(parent=C), excluded=[C]).account != C


@given(
    used=st.lists(st.none() | st.floats(0, 99), min_size=1, max_size=6),
    running=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    strategy=st.sampled_from(STRATEGIES),
    cursor=st.sampled_from([None, *RING]),
)
def test_no_thread_starts_above_the_threshold_while_another_account_has_headroom(
    used: list[float | None], running: list[int], strategy: Strategy, cursor: AccountId | None
) -> None:
    views = [view("abcdef"[number], each) for number, each in enumerate(used)]
    in_flight = {each.id: count for each, count in zip(views, running, strict=False)}
    memory = RouteMemory(cursor=cursor, in_flight=in_flight)
    chosen = found(views, memory, RoutingSettings(strategy=strategy)).account
    score = {each.id: each.score(NOW) for each in views}[chosen]

    if any(each is None or each < 80 for each in used):
        assert score < 80 or score == 101
