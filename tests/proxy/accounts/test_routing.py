"""The rule by example: what keeps a thread, what releases it, and what is withheld."""

from itertools import pairwise
from typing import Any

import pytest

from proxy.accounts.route import Move, MoveReason, RouteMemory, RoutingSettings
from proxy.accounts.view import ANY, UNSEEN_SCORE, AccountId, AccountView
from tests.proxy.accounts.views import (
    CACHE_FIRST,
    CAPACITY_FIRST,
    MODEL,
    NOW,
    OTHER_MODEL,
    RESET,
    A,
    B,
    binding,
    bound,
    cooldown,
    decide,
    found,
    invalid,
    said,
    spent,
    troubled,
    view,
    window,
    withheld,
)

DAY = 86_400.0


def journey(views: list[AccountView], settings: RoutingSettings, turns: int) -> list[AccountId]:
    """Where a thread that begins on `a` is served, a turn a minute."""
    kept, served = binding(A), [A]
    for turn in range(turns):
        decided = found(views, RouteMemory(binding=kept), settings, NOW + 60.0 * turn)
        assert decided.binding is not None
        kept = decided.binding
        served.append(decided.account)
    return served


def moves(served: list[AccountId]) -> int:
    return sum(one != other for one, other in pairwise(served))


# A thread that is bound.


@pytest.mark.parametrize("settings", [CACHE_FIRST, CAPACITY_FIRST])
def test_when_all_are_hot_no_thread_moves(settings: RoutingSettings) -> None:
    views = [view("a", 95), view("b", 90), view("c", 97)]

    assert moves(journey(views, settings, 20)) == 0


@pytest.mark.parametrize(("settings", "moved"), [(CACHE_FIRST, 0), (CAPACITY_FIRST, 1)])
def test_only_with_capacity_first_a_cool_account_takes_a_thread_once(
    settings: RoutingSettings, moved: int
) -> None:
    views = [view("a", 95), view("b", 40), view("c", 97)]

    assert moves(journey(views, settings, 20)) == moved


@pytest.mark.parametrize("settings", [CACHE_FIRST, CAPACITY_FIRST])
def test_an_account_never_seen_takes_no_thread_that_is_bound(settings: RoutingSettings) -> None:
    assert view("b", None).score(NOW) == UNSEEN_SCORE
    assert moves(journey([view("a", 95), view("b", None)], settings, 20)) == 0


def test_with_capacity_first_a_thread_is_looked_at_once_a_minute() -> None:
    views = [view("a", 95), view("b", 40)]
    early = found(views, bound(scored_at=NOW - 59), CAPACITY_FIRST)
    due = found(views, bound(scored_at=NOW - 60), CAPACITY_FIRST)

    assert said(early) == (A, "reused", "bound")
    assert said(due) == (B, "rebound", "capacity")
    assert due.binding is not None
    assert due.binding.scored_at == NOW


def test_a_look_that_finds_no_account_counts_as_one() -> None:
    looked = found([view("a", 95), view("b", 90)], bound(), CAPACITY_FIRST).binding

    assert looked == binding(scored_at=NOW, used_at=NOW)


@pytest.mark.parametrize(
    ("home", "other", "moved"),
    [(79.9, 0, False), (80, 79.9, True), (80, 80, False), (99, 80, False)],
)
def test_with_capacity_first_a_thread_moves_from_above_the_threshold_to_below(
    home: float, other: float, moved: bool
) -> None:
    decided = found([view("a", home), view("b", other)], bound(), CAPACITY_FIRST)

    assert (decided.account == B) is moved


# What releases it.


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
        ({}, {"account": AccountId("gone")}, "removed"),
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


# Quota that is used up.


def test_when_all_is_spent_it_is_withheld_until_the_soonest_reset() -> None:
    views = [view("a", **spent(900)), view("b", windows=(window(100, NOW + 300),))]

    for memory, move in ((RouteMemory(), None), (bound(), Move.CLEARED)):
        decided = withheld(views, memory)
        assert (decided.spent, decided.retry_at, decided.move) == (True, NOW + 300, move)
        assert decided.reason is MoveReason.QUOTA


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


def test_nothing_that_is_out_of_use_is_tried_while_another_serves() -> None:
    views = [view("a", **spent(probe_at=NOW)), view("b", 99)]

    assert said(found(views)) == (B, "new", "strategy")
    assert said(found([views[0], view("b", **troubled())])) == (B, "new", "alone")


@pytest.mark.parametrize("excluded", [[], [A]])
def test_what_failed_this_turn_is_not_tried_out(excluded: list[AccountId]) -> None:
    decided = decide([view("a", **spent(probe_at=NOW))], excluded=excluded)

    assert hasattr(decided, "probe") is not bool(excluded)


@pytest.mark.parametrize(
    ("views", "is_spent", "retry_at", "why"),
    [
        ([], False, None, "removed"),
        ([view("a", paused=True)], False, None, "paused"),
        ([view("a", models=())], False, None, "plan"),
        ([view("a", **invalid(NOW + 30))], False, NOW + 30, "credential"),
        ([view("a", **invalid(NOW - 30, probing=True))], False, NOW + 1, "credential"),
        ([view("a", paused=True), view("b", **spent(90))], True, NOW + 90, "quota"),
        ([view("a", **invalid(NOW + 30)), view("b", **spent(90))], True, NOW + 90, "quota"),
        ([view("a", **invalid(NOW + 90)), view("b", **spent(30))], True, NOW + 30, "quota"),
        ([view("a", **spent(0.5))], True, NOW + 1, "quota"),
    ],
)
def test_a_withheld_turn_learns_why_and_until_when(
    views: list[AccountView], is_spent: bool, retry_at: float | None, why: str
) -> None:
    decided = withheld(views)

    assert (decided.spent, decided.retry_at, decided.reason.value) == (is_spent, retry_at, why)


def test_a_refusal_of_one_model_leaves_the_other_where_it_is() -> None:
    views = [view("a", **spent(family=MODEL)), view("b")]

    assert found(views, bound(), family=MODEL).account == B
    assert said(found(views, bound(), family=OTHER_MODEL)) == (A, "reused", "bound")
    assert said(found(views, bound(), family=ANY)) == (A, "reused", "bound")


def test_a_probe_without_a_reset_in_sight_is_still_in_the_future() -> None:
    both: dict[str, Any] = {"spent": {ANY: cooldown(0.1), MODEL: cooldown(5)}}

    assert withheld([view("a", **both)]).retry_at == NOW + 5
    assert withheld([view("a", windows=(window(100, RESET),))]).retry_at == RESET
