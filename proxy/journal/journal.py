"""Journal: one record for each finished turn and each refusal, counted at once and written soon.

Theory of operation
-------------------
`record` is synchronous and never waits: it counts, logs a line, and puts the record into a bounded
queue, from which the database's writer takes it within `FLUSH_SECONDS`. A disk that cannot keep up
costs records (counted as `lost`), never a turn.
"""

import logging
import sqlite3
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lifecycle import Ask, RootId
from proxy.database import Database
from proxy.database_file import Statement
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.store import newest_of, prepare, statements
from proxy.journal.summary import HOUR_SECONDS, MOST_RECORDS
from proxy.refusal import Reason
from proxy.responses.events import TokenUsage

logger = logging.getLogger(__name__)

MODEL_CHARACTERS = 100
"""The longest name of a model that is kept: it is the one text here that a client writes."""
RECENT_RECORDS = MOST_RECORDS
"""Records kept in memory, for commands that ask the process; about 3 MB."""
FLUSH_SECONDS = 0.5
MOST_QUEUED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]
    queued: int
    lost: int


class Journal:
    """Without a database, records are counted and logged only. `before` are records of earlier
    processes that are still of interest."""

    def __init__(self, database: Database | None = None, before: Iterable[TurnRecord] = ()) -> None:
        self._database = database
        if database is not None:
            database.add(self)
        self.recent: deque[TurnRecord] = deque(before, maxlen=RECENT_RECORDS)
        self._queue: deque[TurnRecord] = deque()
        self._outcomes = Counter[str]()
        self._refusals = Counter[str]()
        self._lost = 0
        self._taken = 0

    def __repr__(self) -> str:
        return f"<Journal {len(self.recent)} recent, {len(self._queue)} queued, {self._lost} lost>"

    def record(self, record: TurnRecord) -> None:
        """Record a turn that ended, or a request that was refused."""
        if (model := _on_one_line(record.model)) != record.model:
            record = replace(record, model=model)
        self.recent.append(record)
        self._outcomes[record.outcome.value] += 1
        if record.refusal is not None:
            self._refusals[record.refusal] += 1
        if self._database is not None:
            if len(self._queue) < MOST_QUEUED:
                self._queue.append(record)
                self._database.wake(within=FLUSH_SECONDS)
            else:
                self._lost += 1
        logger.info(
            "%s %s %s %s %.0f ms, tokens in %s, cached %s, out %s%s",
            record.transport,
            _ended(record),
            record.model or "-",
            "anonymous" if record.lane is None else record.lane[:8],
            record.total_ms,
            *("?" if count is None else count for count in _tokens(record.usage)),
            _served(record),
        )

    def refused(
        self,
        reason: Reason,
        *,
        transport: Transport,
        wall: float,
        principal: str = "-",
        ask: Ask | None = None,
        root: RootId | None = None,
    ) -> None:
        """Record a refusal before any turn began; `root` is the one that would have paid."""
        self.record(
            TurnRecord(
                wall=wall,
                principal=principal,
                transport=transport,
                outcome=Outcome.REFUSED,
                lane=None if ask is None else ask.lane,
                root=root,
                worker=ask is not None and ask.worker,
                refusal=reason,
            )
        )

    # For the database's writer.

    def take(self) -> list[Statement]:
        records = [*self._queue]
        self._queue.clear()
        self._taken = len(records)
        return statements(records) if records else []

    def settle(self, error: sqlite3.Error | None) -> None:
        if error is not None:
            self._lost += self._taken
            logger.warning("%d records are lost: %s", self._taken, error)

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            outcomes=MappingProxyType(dict(self._outcomes)),
            refusals=MappingProxyType(dict(self._refusals)),
            queued=len(self._queue),
            lost=self._lost,
        )


def _on_one_line(name: str | None) -> str | None:
    if name is None or (name.isprintable() and len(name) <= MODEL_CHARACTERS):
        return name
    return "".join(x if x.isprintable() else "?" for x in name[:MODEL_CHARACTERS])


def _tokens(usage: TokenUsage) -> tuple[int | None, int | None, int | None]:
    return usage.input_tokens, usage.cached_tokens, usage.output_tokens


def _served(record: TurnRecord) -> str:
    if record.move is None:
        return ""
    return f", account {record.account or '-'} {record.move}/{record.reason}"


def _ended(record: TurnRecord) -> str:
    if record.refusal is not None:
        return f"refused: {record.refusal}"
    if record.outcome is Outcome.UPSTREAM_REFUSED:
        return f"{record.outcome.value} {record.status}"
    return record.outcome.value


def open_journal(database: Database, wall: float) -> Journal:
    """Open the journal of a home, with the records of the last hour. Raises ConfigError."""
    prepare(database, wall)
    since = wall - HOUR_SECONDS
    recent = [record for record in newest_of(database, RECENT_RECORDS) if record.wall > since]
    return Journal(database, recent)
