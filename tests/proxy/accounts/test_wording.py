"""What is said of accounts that cannot serve, and of the reason for a route."""

from collections.abc import Mapping

from proxy.accounts.route import MoveReason
from proxy.accounts.view import Standing
from proxy.accounts.wording import advice, out_of_use, why
from tests.testkit.snapshots import Snapshot

SPENT, INVALID, PLAN, PAUSED = Standing.SPENT, Standing.INVALID, Standing.PLAN, Standing.PAUSED


def test_accounts_that_cannot_serve_are_counted(snapshot: Snapshot) -> None:
    counts: list[Mapping[Standing, int]] = [
        {},
        {PAUSED: 1},
        {SPENT: 5},
        {PAUSED: 3, INVALID: 1, SPENT: 1},
        {PLAN: 2, SPENT: 1},
    ]

    snapshot("accounts", *map(out_of_use, counts))


def test_what_can_be_done_is_named_and_nothing_that_does_not_help() -> None:
    assert advice({SPENT: 1}) == ""
    assert "resume" in advice({PAUSED: 1})
    assert "accounts test" not in advice({PAUSED: 1, SPENT: 1})
    assert "accounts test" in advice({INVALID: 1})
    assert all(word in advice({PLAN: 1, PAUSED: 1}) for word in ("models", "resume"))


def test_every_reason_has_its_words(snapshot: Snapshot) -> None:
    snapshot("accounts", *(f"{reason}: {why(reason)}" for reason in MoveReason))
