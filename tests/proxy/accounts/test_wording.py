"""Words: why accounts cannot serve is counted as it is, and what can be done is named."""

from collections.abc import Mapping

import pytest

from proxy.accounts.route import MoveReason
from proxy.accounts.view import Standing
from proxy.accounts.wording import advice, out_of_use, why

SPENT, INVALID, PLAN, PAUSED = Standing.SPENT, Standing.INVALID, Standing.PLAN, Standing.PAUSED


@pytest.mark.parametrize(
    ("standings", "said"),
    [
        ({}, "there is no account any more"),
        ({PAUSED: 1}, "its account is paused"),
        ({SPENT: 5}, "all 5 of its accounts are spent"),
        (
            {PAUSED: 3, INVALID: 1, SPENT: 1},
            "of its 5 accounts 1 is spent, 1 has a credential that was refused or cannot be read "
            "and 3 are paused",
        ),
        ({PLAN: 2, SPENT: 1}, "of its 3 accounts 1 is spent and 2 do not include this model"),
    ],
)
def test_accounts_that_cannot_serve_are_counted(
    standings: Mapping[Standing, int], said: str
) -> None:
    assert out_of_use(standings) == said


def test_what_can_be_done_is_named_and_nothing_that_does_not_help() -> None:
    assert advice({SPENT: 1}) == ""
    assert "resume" in advice({PAUSED: 1})
    assert "accounts test" not in advice({PAUSED: 1, SPENT: 1})
    assert "accounts test" in advice({INVALID: 1})
    assert all(word in advice({PLAN: 1, PAUSED: 1}) for word in ("models", "resume"))


@pytest.mark.parametrize("reason", MoveReason)
def test_every_reason_has_its_words(reason: MoveReason) -> None:
    assert why(reason) != ""
