"""Outbox: the messages from one turn to its client, bounded, with a slot for how the turn ended.

Theory of operation
-------------------
The turn puts events in; the writer, a task outside the turn's nursery, takes out whatever has come
together since it last looked, so what arrives together leaves together. The turn waits when it is
`limit_bytes` ahead of what is written, at most `stall_seconds` without any progress of the writer;
what the writer has in its hand counts until it comes back for more.

The end is not a message but a slot: `end` is synchronous and cannot fail on a full outbox. Writing
is none of the turn's business, so a client that stops reading holds a writer, never a lane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import trio

from proxy.errors import ClientStalled
from proxy.responses import UNKNOWN_USAGE, Usage
from proxy.upstream.base import Failure, Headers
from proxy.upstream.sse import Batch, Event


class Outcome(StrEnum):
    """How a turn ended; the last three are what an operator did to a workflow or an account."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_FAILED = "upstream_failed"
    CUT = "cut"
    INTERRUPTED = "interrupted"
    REPLACED = "replaced"
    DISPLACED = "displaced"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    SHUTDOWN = "shutdown"
    BROKEN = "broken"
    LISTED = "listed"
    CLEARED = "cleared"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The upstream's status and headers, those that may go down."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeReply:
    """A reply read to its end: status, headers and body as the upstream sent them."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(WholeReply):
    """A reply other than 2xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentQuota:
    """No account has quota left; `resets_at` (seconds since the epoch) is when the first has."""

    resets_at: float | None
    plan_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a turn ended, and what its client is still to be told.

    At most one of: `final`, the terminal event, held back until the leases were returned; `refusal`
    with its `detail`, our own no; `rejected`, the upstream's no; `failure`, no reply at all.
    """

    outcome: Outcome
    final: Event | None = None
    refusal: str | None = None
    retry_seconds: float | None = None
    detail: str = ""
    spent: SpentQuota | None = None
    asked: bool = False
    """A refusal of ours after all: some provider has been asked for this turn."""
    rejected: Rejected | None = None
    failure: Failure | None = None
    usage: Usage = UNKNOWN_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    head: Head | None
    batches: Sequence[Batch]
    ended: Ended | None


class Outbox:
    def __init__(self, limit_bytes: int, stall_seconds: float) -> None:
        self._limit = limit_bytes
        self._stall_seconds = stall_seconds
        self._head: Head | None = None
        self._batches: list[Batch] = []
        self._size = 0
        self._written_size = 0
        """What the writer took last, and may still be writing."""
        self.injected = 0
        """Events of our own that the writer has not taken."""
        self._ended: Ended | None = None
        self._discarded = False
        self._writing_since: float | None = None
        self._writer: trio.lowlevel.Task | None = None
        """It waits for something to take."""
        self._drained = trio.lowlevel.ParkingLot()

    @property
    def ended(self) -> Ended | None:
        return self._ended

    def begin(self, head: Head) -> None:
        """The head goes before the first event, in the same write."""
        if not self._discarded:
            self._head = head

    async def put(self, batch: Batch) -> None:
        """Add events. Raises ClientStalled when there is no room and the writer is stuck."""
        self._add(batch)
        if self._size + self._written_size > self._limit:
            await self._wait_until(lambda: self._size + self._written_size <= self._limit)

    def inject(self, frame: bytes) -> None:
        """Add an event of our own, whatever the limit: it is small, and `injected` counts it."""
        self.injected += 1
        self._add(Batch(frame, (frame,)))

    def _add(self, batch: Batch) -> None:
        if self._discarded:
            return
        self._batches.append(batch)
        self._size += len(batch.raw)
        self._wake_writer()

    async def wait_taken(self) -> None:
        """Until the writer has taken the last byte. Raises ClientStalled."""
        await self._wait_until(lambda: not self._size)

    def discard(self) -> None:
        """Drop what the writer has not taken, and what is still put in: nobody shall see it."""
        self._batches, self._size, self._head, self.injected = [], 0, None, 0
        self._written_size = 0
        self._discarded = True
        self._drained.unpark_all()

    def end(self, ended: Ended) -> None:
        """Set how the turn ended. The first word stands."""
        if self._ended is None:
            self._ended = ended
            self._wake_writer()

    async def take(self) -> Taken:
        """Everything there is; waits while there is nothing."""
        self._writing_since, self._written_size = None, 0
        if self._drained:
            self._drained.unpark_all()
        try:
            while not self._batches and self._ended is None:
                await self._wait_filled()
        finally:  # a writer that will not wait any longer has a filler to write
            self._writing_since = trio.current_time()
        taken = Taken(head=self._head, batches=self._batches, ended=self._ended)
        self._written_size = self._size
        self._head, self._batches, self._size, self.injected = None, [], 0, 0
        if self._drained:
            self._drained.unpark_all()
        return taken

    async def _wait_filled(self) -> None:
        """There is one writer, so this is a parking lot for one, at a third of the cost."""
        assert self._writer is None, "an outbox has one writer"
        self._writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            trio.lowlevel.reschedule(writer)

    def stalled_seconds(self) -> float:
        """For how long the writer has been busy with what it took last."""
        since = self._writing_since
        return 0.0 if since is None or self._ended else trio.current_time() - since

    async def _wait_until(self, drained: Callable[[], bool]) -> None:
        while not drained():
            with trio.move_on_after(self._stall_seconds) as scope:
                await self._drained.park()
            if scope.cancelled_caught:
                raise ClientStalled
