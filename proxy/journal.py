"""Journal: one record for each finished turn and each refusal; the only place that redacts.

A record holds digests, numbers and names from our own tables: no prompt, token, header or path.
"""

import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from proxy.outbox import Outcome
from proxy.responses import UNKNOWN_USAGE, Usage

logger = logging.getLogger("turnlane")

RECENT_RECORDS = 256
"""Records kept in memory for `/status` and its readers."""
MODEL_CHARACTERS = 100
"""Of a model's name, which is the one text here that a client writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """`wall` is seconds since the epoch; durations are milliseconds; None is unknown, not 0."""

    wall: float
    principal: str
    transport: str
    outcome: Outcome
    lane: str | None = None
    root: str | None = None
    worker: bool = False
    model: str | None = None
    attempts: int = 0
    status: int | None = None
    refusal: str | None = None
    first_event_ms: float | None = None
    total_ms: float = 0.0
    usage: Usage = UNKNOWN_USAGE
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]


class Journal:
    def __init__(self) -> None:
        self.recent: deque[TurnRecord] = deque(maxlen=RECENT_RECORDS)
        self._outcomes = Counter[str]()
        self._refusals = Counter[str]()

    def record(self, record: TurnRecord) -> None:
        """Note a turn that ended, or an ask that was refused."""
        record = replace(record, model=_on_one_line(record.model))
        self.recent.append(record)
        self._outcomes[record.outcome.value] += 1
        if record.refusal is not None:
            self._refusals[record.refusal] += 1
        logger.info(
            "%s %s %s %s %.0f ms, tokens in %s, cached %s, out %s",
            record.transport,
            record.outcome.value if record.refusal is None else f"refused: {record.refusal}",
            record.model or "-",
            "anonymous" if record.lane is None else record.lane[:8],
            record.total_ms,
            *("?" if count is None else count for count in _tokens(record.usage)),
        )

    def refused(self, refusal: str, *, transport: str, wall: float, principal: str = "-") -> None:
        """Note a refusal that fell before there was an ask."""
        self.record(
            TurnRecord(
                wall=wall,
                principal=principal,
                transport=transport,
                outcome=Outcome.REFUSED,
                refusal=refusal,
            )
        )

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            outcomes=MappingProxyType(dict(self._outcomes)),
            refusals=MappingProxyType(dict(self._refusals)),
        )


def _on_one_line(name: str | None) -> str | None:
    if name is None:
        return None
    return "".join(x if x.isprintable() else "?" for x in name[:MODEL_CHARACTERS])


def _tokens(usage: Usage) -> tuple[int | None, int | None, int | None]:
    return usage.input_tokens, usage.cached_tokens, usage.output_tokens
