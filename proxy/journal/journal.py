"""Journal: one record for each finished turn and each refusal; counts now, stores soon.

Theory of operation
-------------------
`record` is synchronous and never waits: it counts, logs a line, and puts the record into a bounded
queue. One owner task writes what has gathered, at most `FLUSH_SECONDS` later, in a thread. A disk
that cannot keep up costs records (counted as `lost`), never a turn.
"""

import logging
import sqlite3
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import trio

from lifecycle import Ask, RootId
from proxy.journal.outcome import Outcome, Transport
from proxy.journal.record import TurnRecord
from proxy.journal.store import Store
from proxy.journal.summary import MOST_RECORDS
from proxy.refusal import Reason
from proxy.responses.events import TokenUsage

logger = logging.getLogger(__name__)

MODEL_CHARACTERS = 100
"""Of a model's name, which is the one text here that a client writes."""
RECENT_RECORDS = MOST_RECORDS
"""Records kept in memory, for whoever asks the process itself; about 3 MB."""
FLUSH_SECONDS = 0.5
MOST_QUEUED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]
    queued: int
    lost: int


class Journal:
    """`store` may be None: then records are counted and logged, and that is all. `before` are
    records of an earlier process that are still of interest."""

    def __init__(self, store: Store | None = None, before: Iterable[TurnRecord] = ()) -> None:
        self._store = store
        self.recent: deque[TurnRecord] = deque(before, maxlen=RECENT_RECORDS)
        self._queue: deque[TurnRecord] = deque()
        self._outcomes = Counter[str]()
        self._refusals = Counter[str]()
        self._lost = 0

    def record(self, record: TurnRecord) -> None:
        """Note a turn that ended, or an ask that was refused."""
        if (model := _on_one_line(record.model)) != record.model:
            record = replace(record, model=model)
        self.recent.append(record)
        self._outcomes[record.outcome.value] += 1
        if record.refusal is not None:
            self._refusals[record.refusal] += 1
        if self._store is not None:
            if len(self._queue) < MOST_QUEUED:
                self._queue.append(record)
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
        """Note a refusal that no turn is there to record; `root` would have paid."""
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

    async def write(self) -> None:
        """The owner task: write until cancelled. Whoever closes the store flushes what is left."""
        own_thread = trio.CapacityLimiter(1)  # decompressing bodies may have all the shared ones
        while True:
            await trio.sleep(FLUSH_SECONDS)
            if self._queue:
                await trio.to_thread.run_sync(self.flush, limiter=own_thread)

    def flush(self) -> None:
        """Write what is queued. Called by one thread at a time."""
        if self._store is None or not self._queue:
            return
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            self._store.append(batch)
        except sqlite3.Error as error:
            self._lost += len(batch)
            logger.warning("%d records are lost: %s", len(batch), error)

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
