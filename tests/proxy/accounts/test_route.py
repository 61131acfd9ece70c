"""Routes in words: what clients and operators are told of a reason, and of a turn withheld."""

from collections.abc import Mapping

from proxy.accounts.route import MoveReason, Withheld
from proxy.accounts.view import Standing
from tests.testkit.snapshots import Snapshot

SPENT, INVALID, PLAN, PAUSED = Standing.SPENT, Standing.INVALID, Standing.PLAN, Standing.PAUSED


def withheld(standings: Mapping[Standing, int]) -> Withheld:
    return Withheld(
        spent=False, retry_at=None, move=None, reason=MoveReason.QUOTA, standings=standings
    )


def advice(*standings: Standing) -> str:
    return withheld(dict.fromkeys(standings, 1)).advice


def test_accounts_that_cannot_serve_are_counted(snapshot: Snapshot) -> None:
    counts: list[Mapping[Standing, int]] = [
        {},
        {PAUSED: 1},
        {SPENT: 5},
        {PAUSED: 3, INVALID: 1, SPENT: 1},
        {PLAN: 2, SPENT: 1},
    ]

    snapshot("accounts", *(withheld(each).words for each in counts))


def test_what_can_be_done_is_named_and_nothing_that_does_not_help() -> None:
    assert advice(SPENT) == ""
    assert "resume" in advice(PAUSED)
    assert "accounts test" not in advice(PAUSED, SPENT)
    assert "accounts test" in advice(INVALID)
    assert all(word in advice(PLAN, PAUSED) for word in ("models", "resume"))


def test_every_reason_has_its_words(snapshot: Snapshot) -> None:
    snapshot("accounts", *(f"{reason}: {reason.words}" for reason in MoveReason))
