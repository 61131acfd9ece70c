"""What an account's view says of it: score, standing, when quota returns, who may probe."""

from typing import Any

import pytest

from proxy.accounts.view import ANY, UNSEEN_SCORE, Family, Standing, family_of
from tests.testkit.accounts import (
    MODEL,
    NOW,
    OTHER_MODEL,
    RESET,
    cooldown,
    invalid,
    spent,
    troubled,
    view,
    window,
)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-5", "gpt-5"),
        (" GPT-5 ", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-20250807", "gpt-5"),
        ("gpt-5-latest", "gpt-5"),
        ("gpt-5-codex", "gpt-5-codex"),
        ("gpt-5-2025-08-07-mini", "gpt-5-2025-08-07-mini"),
        ("o3-1234", "o3-1234"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_family_is_the_model_without_its_date(model: str | None, family: str) -> None:
    assert family_of(model) == family


def test_the_score_is_the_highest_live_window() -> None:
    both = (window(30), window(70, name="secondary"))

    assert view("a", windows=both).score(NOW) == 70


def test_a_window_that_has_reset_counts_as_unused() -> None:
    past = (window(100, resets_at=NOW), window(30, name="secondary"))

    assert view("a", windows=past).score(NOW) == 30
    assert view("a", windows=past).score(NOW - 1) == 100
    assert view("a", windows=past[:1]).score(NOW) == 0
    assert view("a", windows=past).standing(MODEL, NOW) is Standing.READY


def test_an_account_never_seen_scores_above_all_that_were() -> None:
    assert view("a", None).score(NOW) == UNSEEN_SCORE == 101
    assert not view("a", None).seen()
    assert view("a", 0).seen()


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, Standing.READY),
        (troubled(), Standing.TROUBLED),
        (troubled(family=MODEL), Standing.TROUBLED),
        (troubled(family=OTHER_MODEL), Standing.READY),
        (troubled(0), Standing.READY),
        (spent(), Standing.SPENT),
        (spent(family=MODEL), Standing.SPENT),
        (spent(family=OTHER_MODEL), Standing.READY),
        (spent(0), Standing.READY),
        (spent() | troubled(), Standing.SPENT),
        (invalid(), Standing.INVALID),
        (invalid() | spent(), Standing.INVALID),
        ({"models": ("gpt-4*",)}, Standing.PLAN),
        ({"models": ("gpt-4*",), **invalid()}, Standing.PLAN),
        ({"models": ("gpt-4*", "GPT-5*")}, Standing.READY),
        ({"models": ("gpt-5-2025-08-07",)}, Standing.READY),
        ({"models": ()}, Standing.PLAN),
        ({"paused": True, "models": ()}, Standing.PAUSED),
        ({"windows": (window(99.9),)}, Standing.READY),
        ({"windows": (window(100),)}, Standing.SPENT),
        ({"windows": (window(100),), "credits": True}, Standing.READY),
        ({"credits": True, **spent()}, Standing.SPENT),
    ],
)
def test_the_standing_is_the_worst_that_holds(changes: dict[str, Any], standing: Standing) -> None:
    assert view("a", **changes).standing(MODEL, NOW) is standing


def test_without_a_model_only_the_account_counts() -> None:
    changes = spent(family=MODEL) | {"models": ("gpt-4*",)}

    assert view("a", **changes).standing(ANY, NOW) is Standing.READY
    assert view("a", **spent()).standing(ANY, NOW) is Standing.SPENT


@pytest.mark.parametrize(
    ("changes", "until"),
    [
        ({}, None),
        (spent(60), NOW + 60),
        ({"spent": {ANY: cooldown(60), MODEL: cooldown(90)}}, NOW + 90),
        ({"spent": {MODEL: cooldown(90)}, "windows": (window(100),)}, RESET),
        ({"spent": {ANY: cooldown(90)}, "windows": (window(100),)}, NOW + 90),
        ({"spent": {ANY: cooldown(0)}, "windows": (window(100),)}, RESET),
        ({"windows": (window(100), window(100, NOW + 9000))}, NOW + 9000),
        ({"windows": (window(100, NOW),)}, None),
    ],
)
def test_quota_is_back_when_nothing_keeps_it_away(
    changes: dict[str, Any], until: float | None
) -> None:
    assert view("a", **changes).spent_until(MODEL, NOW) == until


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, False),
        (spent(probe_at=NOW + 1), False),
        (spent(probe_at=NOW), True),
        (spent(probe_at=NOW, probing=True), False),
        (spent(0, probe_at=NOW), False),
        (spent(probe_at=NOW, family=OTHER_MODEL), False),
        (troubled(probe_at=NOW), True),
        (troubled(probe_at=NOW, probing=True), False),
        (troubled(probe_at=NOW) | spent(probe_at=NOW + 1), False),
        (invalid(NOW), True),
        (invalid(NOW, probing=True), False),
        (invalid(NOW + 1) | troubled(probe_at=NOW), False),
        ({"windows": (window(100),)}, False),
    ],
)
def test_one_request_may_try_out_what_is_due(changes: dict[str, Any], may: bool) -> None:
    assert view("a", **changes).may_probe(Family(MODEL), NOW) is may
