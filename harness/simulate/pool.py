"""The provider of a simulation: accounts whose windows fill up, and the prompts they cache."""

from dataclasses import dataclass
from random import Random

HOUR_SECONDS = 3600.0
FULL_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Assumptions about accounts and caches. Window sizes are in uncached tokens."""

    accounts: int = 5
    start_percent: tuple[float, float] = (80.0, 97.0)
    """Where the weekly window starts; the five-hour window starts anywhere below."""
    weekly_tokens: float = 800e6
    """The incident's own use (0.32e9 uncached, 1.58e9 cached at a tenth) fills what five accounts
    have left between 88.5 % and 100 %."""
    five_hour_tokens: float = 800e6 / 6
    cached_weight: float = 0.1
    """A cached token counts for a tenth, which is its price."""
    kept_seconds: tuple[float, float] = (600.0, 3600.0)
    """Seconds that a prompt stays cached after its last use: drawn for each."""
    whole_points: bool = False
    """Usage is reported in whole percent only."""


@dataclass(slots=True, kw_only=True)
class Quota:
    """One window, counted as it goes."""

    name: str
    size_tokens: float
    length_seconds: float
    used_tokens: float
    resets_at: float

    def percent(self, now: float) -> float:
        while now >= self.resets_at:
            self.resets_at += self.length_seconds
            self.used_tokens = 0.0
        return 100 * self.used_tokens / self.size_tokens


@dataclass(slots=True, kw_only=True)
class _Entry:
    tokens: int
    used_at: float
    kept_seconds: float


class SimAccount:
    """One account: its quota and its cache."""

    def __init__(self, name: str, quotas: tuple[Quota, ...], rng: Random, told: Provider) -> None:
        self.name = name
        self.quotas = quotas
        self._rng = rng
        self._told = told
        self._cache: dict[str, _Entry] = {}

    def percents(self, now: float) -> list[float]:
        """The usage of each window as the provider tells it."""
        exact = [quota.percent(now) for quota in self.quotas]
        return [float(int(x)) for x in exact] if self._told.whole_points else exact

    def score(self, now: float) -> float:
        return max(self.percents(now))

    def spent_until(self, now: float) -> float | None:
        full = [x for x in self.quotas if x.percent(now) >= FULL_PERCENT]
        return max((quota.resets_at for quota in full), default=None)

    def serve(self, prompt: str, tokens: int, now: float) -> int:
        """Serve a prompt; return how many of its tokens were cached. Now all of them are."""
        entry = self._cache.setdefault(
            prompt,
            _Entry(tokens=0, used_at=now, kept_seconds=self._rng.uniform(*self._told.kept_seconds)),
        )
        cached = entry.tokens if now - entry.used_at <= entry.kept_seconds else 0
        entry.tokens, entry.used_at = tokens, now
        for quota in self.quotas:
            quota.percent(now)
            quota.used_tokens += tokens - cached + self._told.cached_weight * cached
        return cached


def open_accounts(told: Provider, seed: int, now: float) -> list[SimAccount]:
    """The same accounts for every rule."""
    accounts = []
    for number in range(told.accounts):
        rng = Random(f"turnlane simulate account {seed} {number}")
        used = rng.uniform(*told.start_percent)
        weekly = _quota("weekly", told.weekly_tokens, 168, used, rng, now)
        below = rng.uniform(0, used)
        short = _quota("five_hour", told.five_hour_tokens, 5, below, rng, now)
        accounts.append(SimAccount(chr(ord("a") + number), (short, weekly), rng, told))
    return accounts


def _quota(
    name: str, size: float, hours: float, used_percent: float, rng: Random, now: float
) -> Quota:
    length = hours * HOUR_SECONDS
    return Quota(
        name=name,
        size_tokens=size,
        length_seconds=length,
        used_tokens=size * used_percent / 100,
        resets_at=now + rng.uniform(0, length),
    )
