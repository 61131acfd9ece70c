"""AccountHealth, pure: what every attempt on an account has shown about it.

Theory of operation
-------------------
Three things keep an account from serving: quota (`spent`), trouble that passes by itself
(`trouble`), and a credential that was refused (`invalid`). Each is a cooldown: it ends at its time,
or earlier when the account serves again. Only a request that began after a refusal proves that it
is over: an old stream that runs to its end says nothing new. So each method takes `began`, when
its request began, beside `now`, both in seconds since the epoch.

Every decision of routing looks at every account, and few of them have changed since the last one.
So the view is cached, and every change of what it shows drops it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from proxy.accounts.usage import QuotaUsage
from proxy.accounts.verdict import LONGEST_HINT_SECONDS, Kind, Verdict
from proxy.accounts.view import ANY, SPENT_PERCENT, AccountId, AccountView, Cooldown, Family, Window

HICCUPS: Final = 3
"""Trouble begins at this many 5xx answers or cut streams in a row; a single one shows nothing."""
FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 60.0
"""Between two probes of an account in trouble: doubled from the first up to the longest."""
QUOTA_PROBE_SECONDS: Final = 300.0
"""Between two probes of a spent account, which are made only while no other can serve."""
INVALID_PROBE_SECONDS: Final = 60.0
"""Between two probes of an account whose credential was refused, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedHealth:
    """The part of an account's health that is kept on disk."""

    windows: tuple[Window, ...] = ()
    spent: Mapping[Family, Cooldown] = field(default_factory=dict)
    plan: str | None = None
    credits: bool = False
    paused: bool = False
    generation: int = 1
    fingerprint: str = ""


class AccountHealth:
    """The health of one account, from what an earlier process `persisted`."""

    def __init__(self, persisted: PersistedHealth | None = None) -> None:
        known = persisted or PersistedHealth()
        self._windows = {window.name: window for window in known.windows}
        self._spent = {key: replace(each, probing=False) for key, each in known.spent.items()}
        self._trouble: dict[Family, Cooldown] = {}
        self._retries: dict[Family, int] = {}
        self._invalid: Cooldown | None = None
        self._streak = 0
        self.plan = known.plan
        self.credits = known.credits
        self._paused = known.paused
        self._view: AccountView | None = None
        self.generation = known.generation
        self.fingerprint = known.fingerprint

    def view(self, account: AccountId, models: tuple[str, ...] | None) -> AccountView:
        """Return what routing may know. `account` and `models` must be the same in every call."""
        if self._view is None:
            self._view = AccountView(
                id=account,
                generation=self.generation,
                windows=tuple(self._windows.values()),
                credits=self.credits,
                paused=self._paused,
                models=models,
                invalid=self._invalid,
                spent=MappingProxyType(self._spent.copy()),
                trouble=MappingProxyType(self._trouble.copy()),
            )
        return self._view

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self, *, paused: bool) -> None:
        self._paused, self._view = paused, None

    def __repr__(self) -> str:
        return f"<AccountHealth {self._view or self.persisted()}>"

    def persisted(self) -> PersistedHealth:
        """Return what to keep on disk. Trouble passes too soon to be worth it, and a credential is
        judged again by the next process."""
        return PersistedHealth(
            windows=tuple(self._windows.values()),
            spent=self._spent.copy(),
            plan=self.plan,
            credits=self.credits,
            paused=self._paused,
            generation=self.generation,
            fingerprint=self.fingerprint,
        )

    def adopt(self, fingerprint: str) -> None:
        """Take on a credential. A different one begins a new generation, about which nothing is
        known. One that cannot be read has no fingerprint; it may turn out to be the same."""
        if not fingerprint:
            return
        if self.fingerprint not in ("", fingerprint):
            self.generation += 1
            self._windows, self._spent, self._trouble = {}, {}, {}
            self._invalid, self._streak, self.credits, self.plan = None, 0, False, None
            self._view = None
        self.fingerprint = fingerprint

    @property
    def invalid(self) -> bool:
        """Whether the credential was refused."""
        return self._invalid is not None

    def renewed(self) -> None:
        """Forget that the credential was refused: it was replaced, or found valid."""
        self._invalid, self._view = None, None

    def reached(self, began: float) -> None:
        """Note an answer to a request that costs no quota: trouble from before it is over and the
        credential is good, but quota may still be spent."""
        over = [key for key, each in self._trouble.items() if began >= each.since]
        for key in over:
            del self._trouble[key]
            self._retries.pop(key, None)
            self._view = None
        self._streak = 0
        self._accepted(began)

    def learn(self, usage: QuotaUsage, now: float) -> None:
        """Take in reported usage; what the report does not mention stays."""
        self._view = None
        self.plan = usage.plan or self.plan
        if usage.credits is not None:
            self.credits = usage.credits
        for window in usage.windows:
            self._windows[window.name] = window
        full = [window for window in usage.windows if window.used_percent >= SPENT_PERCENT]
        if full and not self.credits:
            # A live cooldown keeps its next probe and its end: a refusal knows that better.
            known = self._spent.get(ANY)
            if known is None or not known.live(now):
                until = max(window.resets_at for window in full)
                self._spent[ANY] = Cooldown(
                    since=now, until=until, probe_at=now + QUOTA_PROBE_SECONDS
                )

    def refresh(self, usage: QuotaUsage, now: float) -> None:
        """Take in the provider's usage page; a spent quota that it does not confirm is over."""
        if usage.windows:
            self._windows, self._view = {}, None
            self._spent.pop(ANY, None)
            self.learn(usage, now)

    def begin_probe(self, family: Family, now: float) -> None:
        """Let one request try the account while the others wait for its result."""
        self._set_probing(family, now, probing=True)

    def end_probe(self, family: Family, now: float) -> None:
        self._set_probing(family, now, probing=False)

    def answering(self, family: Family, began: float) -> None:
        """Note that an attempt is being answered: older trouble and spent quota are over."""
        for key in (ANY, family):
            for cooldowns in (self._trouble, self._spent):
                if key in cooldowns and began >= cooldowns[key].since:
                    del cooldowns[key]
                    self._view = None
        self._accepted(began)

    def note(self, verdict: Verdict, family: Family, began: float, now: float) -> None:
        """Note how an attempt ended."""
        match verdict.kind:
            case Kind.SERVED:
                self.answering(family, began)
                # Only a whole answer ends a streak: an account that cuts every stream also starts
                # every one, and must get into trouble all the same.
                self._streak = 0
                self._retries.clear()
            case Kind.NEUTRAL | Kind.DENIED:
                pass
            case Kind.HICCUP:
                self._streak += 1
                if self._streak >= HICCUPS:
                    self._be_in_trouble(ANY, FIRST_RETRY_SECONDS, began, now)
            case Kind.UNREACHABLE:
                self._be_in_trouble(ANY, FIRST_RETRY_SECONDS, began, now)
            case Kind.THROTTLED:
                asked = None if verdict.retry_at is None else verdict.retry_at - now
                self._be_in_trouble(verdict.family, asked, began, now)
            case Kind.QUOTA:
                self._be_spent(verdict, now)
            case Kind.UNAUTHORIZED:
                self.invalidate(now + INVALID_PROBE_SECONDS, now)

    def invalidate(self, probe_at: float, now: float) -> None:
        self._invalid = Cooldown(since=now, until=math.inf, probe_at=probe_at)
        self._view = None

    def delay(self, seconds: float, now: float) -> None:
        """Do not try the account for `seconds`, because its credential cannot be had for now."""
        self._trouble[ANY] = Cooldown(since=now, until=math.inf, probe_at=now + seconds)
        self._view = None

    def _accepted(self, began: float) -> None:
        """Note that a request was accepted with the credential."""
        if self._invalid is not None and began >= self._invalid.since:
            self._invalid, self._view = None, None

    def _be_in_trouble(self, family: Family, asked: float | None, began: float, now: float) -> None:
        """Note trouble. After a first 429 that names no wait (`asked`) the account may be probed
        at once, since a single request of many was refused."""
        known = self._trouble.get(family)
        if known is not None and began < known.since:
            return  # it began before the trouble was known, so it is part of the same
        retries = self._retries[family] = self._retries.get(family, -1) + 1
        wait = FIRST_RETRY_SECONDS * 2 ** max(0, retries - 1) if retries else 0.0
        wait = min(LONGEST_RETRY_SECONDS, max(wait, asked or 0.0))
        since = now if known is None else known.since
        self._trouble[family] = Cooldown(since=since, until=math.inf, probe_at=now + wait)
        self._view = None

    def _be_spent(self, verdict: Verdict, now: float) -> None:
        # A wrong hint of days would idle the account. By the end of the longest window quota is
        # back in any case, so a hint is believed no further than that.
        lengths = [x.minutes * 60 for x in self._windows.values() if x.minutes and x.live(now)]
        longest = max(lengths, default=LONGEST_HINT_SECONDS)
        until = min(verdict.retry_at or now, now + longest)
        self.plan = verdict.plan or self.plan
        self._spent[verdict.family] = Cooldown(
            since=now, until=max(until, now + 1), probe_at=now + QUOTA_PROBE_SECONDS
        )
        self._view = None

    def _set_probing(self, family: Family, now: float, *, probing: bool) -> None:
        self._view = None
        for key in (ANY, family):
            for cooldowns in (self._trouble, self._spent):
                if key in cooldowns and cooldowns[key].live(now):
                    cooldowns[key] = replace(cooldowns[key], probing=probing)
        if self._invalid is not None:
            self._invalid = replace(self._invalid, probing=probing)
