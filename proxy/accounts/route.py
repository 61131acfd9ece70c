"""The words of routing: what is asked and remembered, the settings, and the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from proxy.accounts.view import AccountId, Family, Standing

Strategy = Literal["quota", "round_robin", "fill_first", "reset_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """`[routing]`: how turns find an account."""

    cache_affinity: bool = True
    """A cold prompt costs far more quota than a cooler account saves: 150 k tokens for 7 k."""
    strategy: Strategy = "quota"
    """Where a new thread starts."""
    auto_switch_threshold: float = 80.0
    """Percent. New threads go below it; with `cache_affinity` off, threads above it may move."""
    rescore_seconds: float = 60.0
    """With `cache_affinity` off, a thread is scored again no more often than this."""
    idle_seconds: float = 86_400.0
    """No provider keeps a prompt for a day."""
    hold_seconds: float = 600.0
    """An account in trouble for longer loses its threads: their caches are gone by then."""


class Move(StrEnum):
    REUSED = "reused"
    HELD = "held"
    DETOUR = "detour"
    REBOUND = "rebound"
    NEW = "new"
    CLEARED = "cleared"


class MoveReason(StrEnum):
    """Why a turn goes to its account: what keeps its thread there, released it, or chose."""

    BOUND = "bound"
    PROBE = "probe"
    ALONE = "alone"
    TROUBLE = "trouble"
    RETRY = "retry"
    QUOTA = "quota"
    PAUSED = "paused"
    REMOVED = "removed"
    PLAN = "plan"
    CREDENTIAL = "credential"
    REPLACED = "replaced"
    IDLE = "idle"
    HOLD_EXPIRED = "hold_expired"
    CAPACITY = "capacity"
    PARENT = "parent"
    SIBLING = "sibling"
    ANCHOR = "anchor"
    STRATEGY = "strategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The account of a thread. `held_since` is when the trouble of that account began."""

    account: AccountId
    generation: int
    used_at: float
    scored_at: float = 0.0
    held_since: float | None = None
    detour: AccountId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRequest:
    """What a turn asks for. `bound` is False if its thread is unknown; then no binding is made.

    `anchor` is the account that the request itself continues on (`previous_response_id`).
    """

    family: Family
    bound: bool = True
    anchor: AccountId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMemory:
    """What is remembered for a request. `parent` and `sibling` are the accounts that served those
    threads last; `cursor` is where the last new thread was placed."""

    binding: Binding | None = None
    parent: AccountId | None = None
    sibling: AccountId | None = None
    cursor: AccountId | None = None
    in_flight: Mapping[AccountId, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`binding` is what to remember from here on; None for a wish that is not bound."""

    account: AccountId
    move: Move
    reason: MoveReason
    binding: Binding | None
    probe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Nobody may be sent to. `spent`: there is one that only lacks quota, which comes at
    `retry_at`. `standings` counts all of them."""

    spent: bool
    retry_at: float | None
    move: Move | None
    reason: MoveReason
    standings: Mapping[Standing, int] = field(default_factory=lambda: MappingProxyType({}))
