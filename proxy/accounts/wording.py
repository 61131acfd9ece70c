"""Words: what operators and clients are told of accounts that cannot serve, and of routes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.accounts.route import MoveReason
from proxy.accounts.view import Standing

_STATES: Final = MappingProxyType(
    {
        Standing.SPENT: ("is spent", "are spent"),
        Standing.INVALID: (
            "has a credential that was refused or cannot be read",
            "have credentials that were refused or cannot be read",
        ),
        Standing.PLAN: ("does not include this model", "do not include this model"),
        Standing.PAUSED: ("is paused", "are paused"),
    }
)
"""Of one account and of several."""
_ADVICE: Final = MappingProxyType(
    {
        Standing.INVALID: (
            "`turnlane accounts list` says why, and `turnlane accounts test NAME` tries one again"
        ),
        Standing.PLAN: "`turnlane accounts list` shows the models of each",
        Standing.PAUSED: "`turnlane accounts resume NAME` uses one again",
    }
)
"""What is spent comes back by itself."""
_REASONS: Final = MappingProxyType(
    {
        MoveReason.BOUND: "its prompt cache is there",
        MoveReason.PROBE: "to find out whether it serves again",
        MoveReason.ALONE: "it is the only account",
        MoveReason.TROUBLE: "its account is in trouble",
        MoveReason.RETRY: "its account has just failed",
        MoveReason.QUOTA: "its account is spent",
        MoveReason.PAUSED: "its account is paused",
        MoveReason.REMOVED: "its account was removed",
        MoveReason.PLAN: "its account does not include this model",
        MoveReason.CREDENTIAL: "the credential of its account was refused",
        MoveReason.REPLACED: "its account has another credential now",
        MoveReason.IDLE: "it was idle too long to have a cache",
        MoveReason.HOLD_EXPIRED: "its account was in trouble for too long",
        MoveReason.CAPACITY: "it has more quota left",
        MoveReason.PARENT: "its parent is served there",
        MoveReason.SIBLING: "its sibling is served there",
        MoveReason.ANCHOR: "the response that it continues is there",
        MoveReason.STRATEGY: "chosen by `routing.strategy`",
    }
)


def out_of_use(standings: Mapping[Standing, int]) -> str:
    """`standings` counts the accounts that cannot serve: as many as there are."""
    total = sum(standings.values())
    if not total:
        return "no account is left"
    if total == 1 or len(standings) == 1:
        (state,) = standings
        one, several = _STATES[state]
        return f"its account {one}" if total == 1 else f"all {total} of its accounts {several}"
    parts = [f"{n} {_STATES[x][n > 1]}" for x, n in _sorted(standings)]
    return f"of its {total} accounts {', '.join(parts[:-1])} and {parts[-1]}"


def advice(standings: Mapping[Standing, int]) -> str:
    """What an operator can do; empty where there is only waiting."""
    return "; ".join(_ADVICE[state] for state, _ in _sorted(standings) if state in _ADVICE)


def why(reason: MoveReason) -> str:
    """Of the route of a thread."""
    return _REASONS[reason]


def _sorted(standings: Mapping[Standing, int]) -> list[tuple[Standing, int]]:
    return [(state, standings[state]) for state in _STATES if state in standings]
