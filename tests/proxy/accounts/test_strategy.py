"""Where new threads begin: the four strategies, and that a burst spreads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.route import RouteMemory, RoutingSettings, Strategy
from proxy.accounts.strategy import Places
from proxy.accounts.view import AccountId, AccountView
from tests.proxy.accounts.views import NOW, RESET, A, B, C, D, found, view, window

RING = (A, B, C, D)


def first(
    views: Sequence[AccountView],
    strategy: Strategy = "quota",
    cursor: AccountId | None = None,
    in_flight: dict[AccountId, int] | None = None,
) -> AccountId:
    memory = RouteMemory(cursor=cursor, in_flight=in_flight or {})
    ring = tuple(each.id for each in views)
    return Places(ring, memory, RoutingSettings(strategy=strategy), NOW).first(views).id


def burst(views: Sequence[AccountView], count: int, strategy: Strategy = "quota") -> Counter[str]:
    """New sessions one after another, none of which ends."""
    memory, placed = RouteMemory(), Counter[AccountId]()
    for _ in range(count):
        chosen = found(views, memory, RoutingSettings(strategy=strategy)).account
        placed[chosen] += 1
        memory = replace(memory, cursor=chosen, in_flight=dict(placed))
    return Counter({str(account): number for account, number in placed.items()})


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
        ("round_robin", AccountId("gone"), A),
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


@pytest.mark.parametrize("strategy", ["quota", "round_robin", "fill_first", "reset_first"])
def test_without_headroom_anywhere_it_is_the_one_used_least(strategy: Strategy) -> None:
    views = [view("a", 95), view("b", 80), view("c", 97)]

    assert first(views, strategy) == B


@pytest.mark.parametrize(
    ("running", "account"),
    [({}, A), ({A: 1}, A), ({A: 2}, B), ({A: 3, B: 1}, B), ({A: 3, B: 2}, A)],
)
def test_a_turn_in_flight_counts_as_five_points(
    running: dict[AccountId, int], account: AccountId
) -> None:
    assert first([view("a", 10), view("b", 19)], in_flight=running) == account


def test_where_usage_is_equal_the_next_in_the_ring_is_first() -> None:
    views = [view(account, 10) for account in RING]

    assert [first(views, cursor=cursor) for cursor in RING] == [B, C, D, A]


@pytest.mark.parametrize("used", [0.0, 42.0, 95.0, None])
@pytest.mark.parametrize("strategy", ["quota", "round_robin"])
def test_a_burst_of_32_spreads_over_4_equal_accounts(
    used: float | None, strategy: Strategy
) -> None:
    placed = burst([view(account, used) for account in RING], 32, strategy)

    assert max(placed.values()) - min(placed.values()) <= 1
    assert len(placed) == 4


def test_a_burst_goes_to_known_and_unknown_accounts_alike() -> None:
    placed = burst([view("a", 20), view("b", None), view("c", 20), view("d", None)], 32)

    assert set(placed.values()) == {8}


def test_50_sessions_one_after_another_spread_over_2_accounts() -> None:
    memory, placed = RouteMemory(), Counter[AccountId]()
    for _ in range(50):
        chosen = found([view("a", 10), view("b", 10)], memory).account
        placed[chosen] += 1
        memory = RouteMemory(cursor=chosen)

    assert placed == {A: 25, B: 25}


def test_new_sessions_begin_where_usage_is_lower_however_many_began_elsewhere() -> None:
    assert first([view("a", 30), view("b", 20)], cursor=A) == B
    assert first([view("a", 30), view("b", 20)], cursor=B) == B


@given(
    used=st.lists(st.none() | st.floats(0, 110), min_size=1, max_size=6),
    running=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    strategy=st.sampled_from(["quota", "round_robin", "fill_first", "reset_first"]),
    cursor=st.sampled_from([None, *RING]),
)
def test_no_thread_begins_above_the_threshold_while_another_account_has_headroom(
    used: list[float | None], running: list[int], strategy: Strategy, cursor: AccountId | None
) -> None:
    views = [view("abcdef"[number], each) for number, each in enumerate(used)]
    in_flight = {each.id: count for each, count in zip(views, running, strict=False)}
    chosen = first(views, strategy, cursor, in_flight)
    score = next(each for each in views if each.id == chosen).score(NOW)

    if any(each is None or each < 80 for each in used):
        assert score < 80 or score == 101


@given(
    used=st.none() | st.floats(0, 99),
    accounts=st.integers(1, 6),
    count=st.integers(1, 40),
)
def test_a_burst_over_equal_accounts_spreads_within_one(
    used: float | None, accounts: int, count: int
) -> None:
    placed = burst([view("abcdef"[number], used) for number in range(accounts)], count)
    shares = [placed["abcdef"[number]] for number in range(accounts)]

    assert max(shares) - min(shares) <= 1
