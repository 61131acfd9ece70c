"""Statistics of an account, pure: what it did in the last hour, and how operators see it.

The command line imports this file, so it needs neither trio nor the accounts themselves.
"""

from dataclasses import dataclass
from typing import Final

from proxy.accounts.view import AccountId, Standing, Window

SLOTS: Final = 12
SLOT_SECONDS: Final = 300.0


@dataclass(slots=True)
class _Slot:
    number: int = -1
    turns: int = 0
    cold_starts: int = 0
    cached_tokens: int = 0
    uncached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountHour:
    """The last hour of an account. A cold start is a turn whose thread it did not serve last."""

    turns: int = 0
    cold_starts: int = 0
    cached_tokens: int = 0
    uncached_tokens: int = 0

    @property
    def cache_share(self) -> float | None:
        """The share of input tokens that came from the cache, 0 to 1; None without any."""
        tokens = self.cached_tokens + self.uncached_tokens
        return self.cached_tokens / tokens if tokens else None


class Tally:
    """Counters of one account in slots of fixed memory; only the last hour is kept."""

    def __init__(self) -> None:
        self._slots = [_Slot() for _ in range(SLOTS)]

    def turn(self, now: float, *, cold: bool) -> None:
        slot = self._slot(now)
        slot.turns += 1
        slot.cold_starts += cold

    def tokens(self, now: float, cached: int, uncached: int) -> None:
        slot = self._slot(now)
        slot.cached_tokens += cached
        slot.uncached_tokens += uncached

    def last_hour(self, now: float) -> AccountHour:
        newest = int(now // SLOT_SECONDS)
        live = [slot for slot in self._slots if newest - SLOTS < slot.number <= newest]
        return AccountHour(
            turns=sum(slot.turns for slot in live),
            cold_starts=sum(slot.cold_starts for slot in live),
            cached_tokens=sum(slot.cached_tokens for slot in live),
            uncached_tokens=sum(slot.uncached_tokens for slot in live),
        )

    def _slot(self, now: float) -> _Slot:
        number = int(now // SLOT_SECONDS)
        slot = self._slots[number % SLOTS]
        if slot.number != number:
            slot = self._slots[number % SLOTS] = _Slot(number)
        return slot


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatistics:
    """What operators see of an account. `resets_at` is in seconds since the epoch; None if nothing
    is spent. Other fields are None if unknown."""

    id: AccountId
    kind: str
    plan: str | None
    standing: Standing
    score: float | None
    windows: tuple[Window, ...]
    resets_at: float | None
    cooling_models: tuple[str, ...]
    in_flight: int
    bindings: int
    last_hour: AccountHour
    url: str | None = None
    models: tuple[str, ...] | None = None
    problem: str | None = None
    """What is wrong with the credential, in words."""
    same_as: tuple[AccountId, ...] = ()
    """Other accounts with the same credential, and so with the same quota."""
