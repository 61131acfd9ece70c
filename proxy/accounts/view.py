"""Account views, pure: what routing may know about an account. None of it is secret.

All times are in seconds since the epoch: windows reset at wall times, and what is known about an
account outlives the process that learnt it.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NewType

AccountId = NewType("AccountId", str)
Family = NewType("Family", str)

ANY: Final = Family("")
"""The key of a cooldown that holds for all model families."""
UNSEEN_SCORE: Final = 101.0
"""The score of an account whose usage is unknown: above every reported score."""
SPENT_PERCENT: Final = 100.0

_DATED: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


def family_of(model: str | None) -> Family:
    """Return the family of models that share a prompt cache: the model's name without its date."""
    return Family(_DATED.sub("", (model or "").strip().lower()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of usage as the provider reports it."""

    name: str
    used_percent: float
    resets_at: float
    minutes: int | None = None

    def live(self, now: float) -> bool:
        return now < self.resets_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """A time during which an account, or one model family on it, is not used.

    From `probe_at` on, one request at a time may probe whether it serves again, which ends it.
    """

    since: float
    until: float
    probe_at: float
    probing: bool = False

    def live(self, now: float) -> bool:
        return now < self.until

    def may_probe(self, now: float) -> bool:
        return not self.probing and now >= self.probe_at


Cooldowns = Mapping[Family, Cooldown]


def _none() -> Cooldowns:
    return MappingProxyType({})


class Standing(StrEnum):
    """The state of an account; the worst one if several hold. `plan`: not included in its plan."""

    READY = "ready"
    TROUBLED = "troubled"
    SPENT = "spent"
    INVALID = "invalid"
    PLAN = "plan"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account at one moment. `models` are patterns of what its plan includes; None is all."""

    id: AccountId
    generation: int = 1
    windows: tuple[Window, ...] = ()
    credits: bool = False
    """Whether the account keeps serving when its windows are full."""
    paused: bool = False
    models: tuple[str, ...] | None = None
    invalid: Cooldown | None = None
    spent: Cooldowns = field(default_factory=_none)
    trouble: Cooldowns = field(default_factory=_none)
    _sound: bool = field(init=False, repr=False, compare=False)
    """Whether the account can serve any family at any time; most can, and need no closer look."""

    def __post_init__(self) -> None:
        held = self.paused or self.models is not None or self.invalid or self.spent or self.trouble
        full = any(window.used_percent >= SPENT_PERCENT for window in self.windows)
        object.__setattr__(self, "_sound", not held and not full)

    def score(self, now: float) -> float:
        """Return the usage of the fullest window in percent; one that has reset is unused."""
        if not self.windows:
            return UNSEEN_SCORE
        most = 0.0
        for window in self.windows:
            if window.used_percent > most and now < window.resets_at:
                most = window.used_percent
        return most

    def seen(self) -> bool:
        return bool(self.windows)

    def standing(self, family: Family, now: float) -> Standing:
        if self._sound:
            return Standing.READY
        if self.paused:
            return Standing.PAUSED
        if not self.includes(family):
            return Standing.PLAN
        if self.invalid is not None:
            return Standing.INVALID
        if self.spent_until(family, now) is not None:
            return Standing.SPENT
        return Standing.TROUBLED if self.troubled(family, now) else Standing.READY

    def includes(self, family: Family) -> bool:
        if self.models is None or family == ANY:
            return True
        return any(fnmatch.fnmatchcase(family, family_of(pattern)) for pattern in self.models)

    def spent_until(self, family: Family, now: float) -> float | None:
        """Return when quota is back; None while there is some."""
        ends = [each.until for each in _of(self.spent, family) if each.live(now)]
        ends += [each.resets_at for each in self._full_windows(now)]
        return max(ends, default=None)

    def troubled(self, family: Family, now: float) -> list[Cooldown]:
        return [each for each in _of(self.trouble, family) if each.live(now)]

    def may_probe(self, family: Family, now: float) -> bool:
        """Whether one request may find out whether the account serves again."""
        held = [each for each in _of(self.spent, family) if each.live(now)]
        held += self.troubled(family, now)
        if self.invalid is not None:
            held.append(self.invalid)
        return bool(held) and all(each.may_probe(now) for each in held)

    def _full_windows(self, now: float) -> list[Window]:
        """Return the full windows, or none if a refusal says when quota is back."""
        refused = self.spent.get(ANY)
        if self.credits or (refused is not None and refused.live(now)):
            return []
        return [x for x in self.windows if x.live(now) and x.used_percent >= SPENT_PERCENT]


def _of(cooldowns: Cooldowns, family: Family) -> list[Cooldown]:
    keys = (ANY,) if family == ANY else (ANY, family)
    return [cooldowns[key] for key in keys if key in cooldowns]
