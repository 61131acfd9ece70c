"""Outbox: the messages from one turn to its client, bounded, with a slot for how the turn ended.

Theory of operation
-------------------
The turn puts events in; the writer, a task outside the turn's nursery, takes out whatever has come
together since it last looked, so what arrives together leaves together. The turn waits when it is
`limit_bytes` ahead of what is written, at most `stall_seconds` without any progress of the writer;
what the writer has taken counts until it comes back for more.

The end is not a message but a slot: `end` is synchronous and cannot fail on a full outbox. The turn
never writes to its client, so one that stops reading holds a writer, never a lane.

hand_on: pass what a turn puts in to the writer as it comes, and write fillers in long pauses.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from proxy.errors import ClientStalled
from proxy.responses.sse import Batch
from proxy.turn.ended import Ended, Head


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
        self.discarded = False
        """Its client is past this turn: nothing of it is written any more."""
        self._writing_since: float | None = None
        self._filled = WakeOne()
        self._drained = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        state = "discarded" if self.discarded else "running"
        if self._ended is not None:
            state = type(self._ended).__name__
        return f"<Outbox {state}, {self._size} bytes waiting, {self._written_size} being written>"

    @property
    def ended(self) -> Ended | None:
        return self._ended

    def begin(self, head: Head) -> None:
        """The head goes before the first event, in the same write."""
        if not self.discarded:
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
        if self.discarded:
            return
        self._batches.append(batch)
        self._size += len(batch.raw)
        self._filled.wake()

    async def wait_taken(self) -> None:
        """Wait until the writer has taken the last byte. Raises ClientStalled."""
        await self._wait_until(lambda: not self._size)

    def discard(self) -> None:
        """Drop what the writer has not taken and what is still put in, so that it is never seen."""
        self._batches, self._size, self._head, self.injected = [], 0, None, 0
        self._written_size = 0
        self.discarded = True
        self._drained.unpark_all()

    def end(self, ended: Ended) -> None:
        """Set how the turn ended; only the first call counts."""
        if self._ended is None:
            self._ended = ended
            self._filled.wake()

    async def take(self) -> Taken:
        """Take everything there is; waits while there is nothing."""
        self._writing_since, self._written_size = None, 0
        if self._drained:
            self._drained.unpark_all()
        try:
            while not self._batches and self._ended is None:
                await self._filled.wait()
        finally:  # a cancelled writer is going to write a filler
            self._writing_since = trio.current_time()
        taken = Taken(head=self._head, batches=self._batches, ended=self._ended)
        self._written_size = self._size
        self._head, self._batches, self._size, self.injected = None, [], 0, 0
        if self._drained:
            self._drained.unpark_all()
        return taken

    def stalled_seconds(self) -> float:
        """Return for how long the writer has been busy with what it took last."""
        since = self._writing_since
        return 0.0 if since is None or self._ended else trio.current_time() - since

    async def _wait_until(self, drained: Callable[[], bool]) -> None:
        while not drained():
            with trio.move_on_after(self._stall_seconds) as scope:
                await self._drained.park()
            if scope.cancelled_caught:
                raise ClientStalled


class WakeOne:
    """Let one task wait until another wakes it: trio's ParkingLot for one, at a third of its cost.
    A writer waits here once for each event of a paced stream."""

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`; one before this is forgotten."""
        assert self._task is None, "one task waits at a time"
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


async def hand_on(
    outbox: Outbox,
    write: Callable[[Taken], Awaitable[bool]],
    filler_seconds: float,
    fill: Callable[[], Awaitable[None]],
) -> Taken:
    """Give `write` everything until it returns False, and return what it was given then.

    One timer serves many writes: it is looked at when it goes off, and not moved at each of them.
    So `write` may be cancelled, wherever it waits, and must not wait where that would lose bytes.
    """
    heard = trio.current_time()
    while True:
        with trio.CancelScope(deadline=heard + filler_seconds):
            while True:
                taken = await outbox.take()
                if not await write(taken):
                    return taken
                heard = trio.current_time()
        if trio.current_time() >= heard + filler_seconds:
            await fill()
            heard = trio.current_time()
