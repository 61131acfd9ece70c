"""Summary, pure: the last hour, and when a client was last seen, from the newest records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.journal.record import Outcome, Transport, TurnRecord

HOUR_SECONDS: Final = 3600.0
MOST_RECORDS: Final = 5000
"""The newest records that are counted; of a busier hour, its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """One reason for refusals in the last hour, by turnlane or by an upstream."""

    reason: str
    times: int
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHour:
    """The last hour, over restarts; tokens are summed where the upstream counted them."""

    turns: int = 0
    failed: int = 0
    cached_tokens: int = 0
    input_tokens: int = 0
    refusals: tuple[RefusalCount, ...] = ()

    @property
    def cache_share(self) -> float | None:
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """`last_turn` is when the newest turn of a client with threads, such as Codex, began."""

    hour: LastHour = field(default_factory=LastHour)
    last_turn: float | None = None


def past(records: Sequence[TurnRecord], now: float) -> Past:
    turns = (x for x in records if x.lane is not None and x.refusal is None)
    began = max((x.wall - x.total_ms / 1000 for x in turns), default=None)
    return Past(hour=summed(records, now), last_turn=began)


def summed(records: Iterable[TurnRecord], now: float) -> LastHour:
    """Sum up the records of the last hour."""
    recent = [
        x for x in records if x.wall > now - HOUR_SECONDS and x.transport is not Transport.CONTROL
    ]
    turns = [x for x in recent if x.outcome is not Outcome.REFUSED]
    counted = [x.usage for x in turns if x.usage.input_tokens is not None]
    reasons: dict[str, list[float]] = {}
    for record in recent:
        if (reason := _refusal_of(record)) is not None:
            reasons.setdefault(reason, []).append(record.wall)
    refusals = [
        RefusalCount(reason=reason, times=len(times), last=max(times))
        for reason, times in reasons.items()
    ]
    refusals.sort(key=lambda refusal: refusal.last, reverse=True)
    return LastHour(
        turns=len(turns),
        failed=sum(x.outcome in _FAILED for x in turns),
        cached_tokens=sum(min(x.cached_tokens or 0, x.input_tokens or 0) for x in counted),
        input_tokens=sum(x.input_tokens or 0 for x in counted),
        refusals=tuple(refusals),
    )


_FAILED: Final = frozenset(
    {Outcome.FAILED, Outcome.UPSTREAM_FAILED, Outcome.UPSTREAM_REFUSED, Outcome.CUT, Outcome.BROKEN}
)


def _refusal_of(record: TurnRecord) -> str | None:
    if record.refusal is not None:
        return record.refusal
    if record.outcome is Outcome.UPSTREAM_REFUSED:
        return f"the upstream said {record.status}"
    return record.outcome.value.replace("_", " ") if record.outcome in _FAILED else None
