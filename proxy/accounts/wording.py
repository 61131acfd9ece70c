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
            "`turnlane accounts list` says why, `turnlane accounts test NAME` tries one again"
        ),
        Standing.PLAN: "`turnlane accounts list` shows the models of each",
        Standing.PAUSED: "`turnlane accounts resume NAME` uses one again",
    }
)
"""What is spent comes back by itself."""
_REASONS: Final = MappingProxyType(
    {
        MoveReason.BOUND: "where its prompt cache is",
        MoveReason.PROBE: "to find out whether it serves again",
        MoveReason.ALONE: "there is no other",
        MoveReason.TROUBLE: "its own account is in trouble",
        MoveReason.RETRY: "its own account has just failed",
        MoveReason.QUOTA: "its own account is spent",
        MoveReason.PAUSED: "its own account is paused",
        MoveReason.REMOVED: "its own account was removed",
        MoveReason.PLAN: "its own account does not include this model",
        MoveReason.CREDENTIAL: "the credential of its own account was refused",
        MoveReason.REPLACED: "its own account has another credential now",
        MoveReason.IDLE: "it was idle for too long to have a cache",
        MoveReason.HOLD_EXPIRED: "its own account was in trouble for too long",
        MoveReason.CAPACITY: "it has more quota left",
        MoveReason.PARENT: "where its parent is served",
        MoveReason.SIBLING: "where its sibling is served",
        MoveReason.ANCHOR: "where the response is that it goes on from",
        MoveReason.STRATEGY: "by `routing.strategy`",
    }
)


def out_of_use(standings: Mapping[Standing, int]) -> str:
    """`standings` counts the accounts that cannot serve: as many as there are."""
    total = sum(standings.values())
    if not total:
        return "there is no account any more"
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
