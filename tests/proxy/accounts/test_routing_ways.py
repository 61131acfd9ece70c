"""The rule by example: the way round an account in trouble, and where a thread begins."""

from collections import Counter
from typing import Any

import pytest

from proxy.accounts.route import Move, RouteMemory
from proxy.accounts.view import AccountId, AccountView
from tests.proxy.accounts.views import (
    NOW,
    A,
    B,
    C,
    binding,
    bound,
    found,
    invalid,
    said,
    spent,
    troubled,
    view,
)

# Trouble.


def test_trouble_ends_no_binding_and_the_way_round_is_remembered() -> None:
    views = [view("a", **troubled()), view("b", 30), view("c", 20)]
    first = found(views, bound())
    assert first.binding is not None
    cooler = [views[0], view("b", 5), view("c", 70)]
    second = found(cooler, RouteMemory(binding=first.binding), now=NOW + 1)

    assert said(first) == said(second) == (C, "detour", "trouble")
    assert first.binding == binding(used_at=NOW, held_since=NOW, detour=C)
    assert second.binding == binding(used_at=NOW + 1, held_since=NOW, detour=C)


def test_one_request_tries_the_way_home_and_the_others_go_round() -> None:
    held = bound(held_since=NOW - 60, detour=B)
    due = found([view("a", **troubled(probe_at=NOW)), view("b")], held)
    tried = found([view("a", **troubled(probe_at=NOW, probing=True)), view("b")], held)

    assert said(due) == (A, "held", "probe")
    assert due.probe
    assert said(tried) == (B, "detour", "trouble")
    assert not tried.probe


def test_a_thread_goes_home_when_the_trouble_is_over() -> None:
    decided = found([view("a"), view("b", 0)], bound(held_since=NOW - 3000, detour=B))

    assert said(decided) == (A, "reused", "bound")
    assert decided.binding == binding(used_at=NOW, detour=B)


def test_a_thread_whose_way_round_is_in_trouble_too_finds_another() -> None:
    views = [view("a", **troubled()), view("b", **troubled()), view("c")]
    decided = found(views, bound(held_since=NOW - 60, detour=B))

    assert said(decided) == (C, "detour", "trouble")
    assert decided.binding is not None
    assert decided.binding.detour == C


@pytest.mark.parametrize("others", [[], [view("b", **spent())], [view("b", paused=True)]])
@pytest.mark.parametrize("held_since", [None, NOW - 60, NOW - 6000])
def test_with_no_other_account_a_troubled_one_is_asked_all_the_same(
    others: list[AccountView], held_since: float | None
) -> None:
    decided = found([view("a", **troubled()), *others], bound(held_since=held_since))

    assert said(decided) == (A, "held", "alone")
    assert decided.binding is not None
    assert decided.binding.held_since == (held_since or NOW)


def test_a_new_thread_tries_an_account_in_trouble_that_it_would_begin_on() -> None:
    due = view("a", 10, **troubled(probe_at=NOW))
    found_out = found([due, view("b", 20)])

    assert said(found_out) == (A, "new", "probe")
    assert found_out.probe
    assert found_out.binding == binding(A, used_at=NOW)
    assert said(found([due, view("b", 5)])) == (B, "new", "strategy")


@pytest.mark.parametrize(
    ("trouble", "memory", "excluded"),
    [
        (troubled(probe_at=NOW + 1), RouteMemory(), []),
        (troubled(probe_at=NOW, probing=True), RouteMemory(), []),
        (troubled(probe_at=NOW), RouteMemory(), [C]),
        (troubled(probe_at=NOW), bound(AccountId("gone")), []),
        (spent(probe_at=NOW), RouteMemory(), []),
    ],
    ids=["not due", "tried by another", "no send to lose", "a cache to lose", "spent"],
)
def test_no_other_turn_tries_it_while_another_account_serves(
    trouble: dict[str, Any], memory: RouteMemory, excluded: list[AccountId]
) -> None:
    decided = found([view("a", 10, **trouble), view("b", 20)], memory, excluded=excluded)

    assert decided.account == B
    assert not decided.probe


def test_a_hold_lasts_ten_minutes() -> None:
    views = [view("a", **troubled()), view("b")]

    assert found(views, bound(held_since=NOW - 599)).move is Move.DETOUR
    assert found(views, bound(held_since=NOW - 600)).move is Move.REBOUND


def test_a_hold_that_expires_ends_where_the_thread_has_been_served_meanwhile() -> None:
    views = [view("a", **troubled()), view("b", 90), view("c", 10)]

    assert said(found(views, bound(held_since=NOW - 600, detour=B))) == (
        B,
        "rebound",
        "hold_expired",
    )
    colds: list[dict[str, Any]] = [{"used_at": NOW - 600}, {"held_since": None}]
    for cold in colds:
        kept = {"held_since": NOW - 600, "detour": B, **cold}
        spent_home = [view("a", **spent()), *views[1:]]
        assert found(spent_home, bound(**kept)).account == C


def test_one_hiccup_of_the_very_turn_is_a_way_round_and_no_release() -> None:
    views = [view("a"), view("b")]
    retried = found(views, bound(), excluded=[A])
    assert retried.binding is not None
    after = found(views, RouteMemory(binding=retried.binding), now=NOW + 60)

    assert said(retried) == (B, "detour", "retry")
    assert retried.binding.account == A
    assert said(after) == (A, "reused", "bound")


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([], (A, "held", "alone")),
        ([view("b", **troubled())], (B, "detour", "retry")),
        ([view("b", **spent())], (A, "held", "alone")),
        ([view("b", **troubled()), view("c", 90)], (C, "detour", "retry")),
    ],
)
def test_what_failed_this_turn_is_tried_again_only_if_no_other_account_serves(
    others: list[AccountView], told: tuple[str, str, str]
) -> None:
    assert said(found([view("a"), *others], bound(), excluded=[A])) == told


# Where a thread begins.


@pytest.mark.parametrize(
    ("parent", "sibling", "used", "told"),
    [
        (A, B, (60, 70, 10), (A, "new", "parent")),
        (A, B, (80, 70, 10), (B, "new", "sibling")),
        (A, B, (80, 80, 10), (C, "new", "strategy")),
        (A, B, (90, 85, 80), (A, "new", "parent")),
        (None, B, (90, 85, 80), (B, "new", "sibling")),
        (A, None, (None, 85, 10), (A, "new", "parent")),
        (AccountId("gone"), None, (60, 70, 10), (C, "new", "strategy")),
    ],
)
def test_a_child_begins_with_its_family_while_there_is_room(
    parent: AccountId | None,
    sibling: AccountId | None,
    used: tuple[float | None, ...],
    told: tuple[str, str, str],
) -> None:
    views = [view(name, each) for name, each in zip("abc", used, strict=True)]

    assert said(found(views, RouteMemory(parent=parent, sibling=sibling))) == told


@pytest.mark.parametrize("parent", [spent(), troubled(), invalid(), {"paused": True}])
def test_a_child_does_not_follow_where_no_account_can_serve(parent: dict[str, Any]) -> None:
    memory = RouteMemory(parent=A, sibling=B)

    assert said(found([view("a", **parent), view("b")], memory)) == (B, "new", "sibling")


def test_what_a_request_continues_on_comes_before_family_and_room() -> None:
    views = [view("a", 10), view("b", 99)]

    assert said(found(views, RouteMemory(parent=A), anchor=B)) == (B, "new", "anchor")
    spent_anchor = [view("a", 10), view("b", **spent())]
    assert said(found(spent_anchor, RouteMemory(parent=A), anchor=B)) == (A, "new", "parent")


def test_when_all_are_in_trouble_new_threads_spread_and_children_follow() -> None:
    views = [view(name, 50, **troubled()) for name in "abc"]
    placed, memory = Counter[AccountId](), RouteMemory()
    for _ in range(6):
        decided = found(views, memory)
        assert said(decided)[1:] == ("new", "alone")
        placed[decided.account] += 1
        memory = RouteMemory(cursor=decided.account, in_flight=dict(placed))

    assert placed == {A: 2, B: 2, C: 2}
    assert found(views, RouteMemory(parent=C)).account == C
    assert found(views, RouteMemory(parent=C), excluded=[C]).account != C


def test_a_turn_without_a_thread_is_placed_and_nothing_is_kept() -> None:
    decided = found([view("a", 50), view("b", 10)], bound=False)

    assert said(decided) == (B, "new", "strategy")
    assert decided.binding is None
