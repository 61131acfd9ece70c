"""Routes, pure: the settings of routing, what it is asked, what it answers, and that in words.

Times are in seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, Self

from proxy.accounts.view import AccountId, Family, Standing

Strategy = Literal["quota", "round_robin", "fill_first", "reset_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """`[routing]`: how turns find an account."""

    cache_affinity: bool = True
    """Keep a thread on its account: a cold prompt costs far more quota than a cooler account saves,
    150 k tokens instead of 7 k."""
    strategy: Strategy = "quota"
    """Where a new thread starts."""
    auto_switch_threshold: float = 80.0
    """Percent. New threads go below it; with `cache_affinity` off, threads above it may move."""
    rescore_seconds: float = 60.0
    """With `cache_affinity` off, a thread is scored again no more often than this."""
    idle_seconds: float = 86_400.0
    """A binding unused for this long is forgotten: no provider caches a prompt for a day."""
    hold_seconds: float = 600.0
    """An account in trouble for longer loses its threads, whose caches are gone by then."""


class Move(StrEnum):
    """How a turn came to its account: at home (`reused`, or `held` despite trouble), on a `detour`,
    `rebound` to another, `new`, or nowhere (`cleared`)."""

    REUSED = "reused"
    HELD = "held"
    DETOUR = "detour"
    REBOUND = "rebound"
    NEW = "new"
    CLEARED = "cleared"


class MoveReason(StrEnum):
    """Why a turn goes to its account: what kept its thread there, released it, or chose."""

    words: str
    """The reason as operators read it."""

    def __new__(cls, value: str, words: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.words = words
        return member

    BOUND = "bound", "its prompt cache is there"
    PROBE = "probe", "to find out whether it serves again"
    ALONE = "alone", "it is the only account"
    TROUBLE = "trouble", "its account is in trouble"
    RETRY = "retry", "its account has just failed"
    QUOTA = "quota", "its account is spent"
    PAUSED = "paused", "its account is paused"
    REMOVED = "removed", "its account was removed"
    PLAN = "plan", "its account does not include this model"
    CREDENTIAL = "credential", "the credential of its account was refused"
    REPLACED = "replaced", "its account has another credential now"
    IDLE = "idle", "it was idle too long to have a cache"
    HOLD_EXPIRED = "hold_expired", "its account was in trouble for too long"
    CAPACITY = "capacity", "it has more quota left"
    PARENT = "parent", "its parent is served there"
    SIBLING = "sibling", "its sibling is served there"
    ANCHOR = "anchor", "the response that it continues is there"
    STRATEGY = "strategy", "chosen by `routing.strategy`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The account of a thread. `held_since` is when this thread first met that account in trouble.
    `generation` is that of the credential it was bound to. Times are seconds since the epoch."""

    account: AccountId
    generation: int
    used_at: float
    scored_at: float = 0.0
    held_since: float | None = None
    detour: AccountId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRequest:
    """What a turn asks for. `bound` is False if its thread is unknown, so that no binding is made.

    `anchor` is the account that holds the response that the request continues
    (`previous_response_id`).
    """

    family: Family
    bound: bool = True
    anchor: AccountId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMemory:
    """What is remembered for a request. `parent` and `sibling` are the accounts that served those
    threads last; `cursor` is where the last new thread started."""

    binding: Binding | None = None
    parent: AccountId | None = None
    sibling: AccountId | None = None
    cursor: AccountId | None = None
    in_flight: Mapping[AccountId, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The account for a turn. `binding` is what to remember from here on; None for a request that
    is not bound. `probe`: the turn finds out whether the account serves again."""

    account: AccountId
    move: Move
    reason: MoveReason
    binding: Binding | None
    probe: bool = False


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
"""What is said of one account, and of several."""
_ADVICE: Final = MappingProxyType(
    {
        Standing.INVALID: (
            "`turnlane accounts list` says why, and `turnlane accounts test NAME` tries one again"
        ),
        Standing.PLAN: "`turnlane accounts list` shows the models of each",
        Standing.PAUSED: "`turnlane accounts resume NAME` uses one again",
    }
)
"""There is none for spent accounts: their quota comes back by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """The turn can go to no account. `spent`: at least one only lacks quota, which comes back at
    `retry_at`. `standings` counts the accounts in each state; none of them can serve."""

    spent: bool
    retry_at: float | None
    move: Move | None
    reason: MoveReason
    standings: Mapping[Standing, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def words(self) -> str:
        """What is the matter with the accounts, as clients and operators read it."""
        total = sum(self.standings.values())
        if not total:
            return "no account is left"
        if total == 1 or len(self.standings) == 1:
            (state,) = self.standings
            one, several = _STATES[state]
            return f"its account {one}" if total == 1 else f"all {total} of its accounts {several}"
        parts = [f"{n} {_STATES[x][n > 1]}" for x, n in self._sorted()]
        return f"of its {total} accounts {', '.join(parts[:-1])} and {parts[-1]}"

    @property
    def advice(self) -> str:
        """What an operator can do; empty if waiting is all that helps."""
        return "; ".join(_ADVICE[state] for state, _ in self._sorted() if state in _ADVICE)

    def _sorted(self) -> list[tuple[Standing, int]]:
        return [(state, self.standings[state]) for state in _STATES if state in self.standings]
