"""Admission: leases as context managers over the ledger, and the door that a drain closes.

Theory of operation
-------------------
The ledger decides; this file only waits. A lease is an `async with` block that opens a nursery,
the turn's: everything a turn does runs there, so when the block is over no task of the turn is
left, and only then does the lease go back. Giving back is synchronous, so no cancellation can lose
it, whichever way the block ends. It may pass the lease on to a waiting ask: the ledger grants it in
that same step, and its task is woken.

The turn's nursery holds what needs the lease: the task that prepares the request, reads the
upstream and fills the outbox (`proxy.turn.run`), and whatever it starts. Two tasks that look like
the turn's stay outside, because each must live longer than the lease. The writer may hang for as
long as a client does not read: it empties the outbox, and has the timer for fillers, which count
from its last write. And `receive` is read by one task from the first moment of a connection to the
last, also while the end of a turn is written: on a hang-up it cancels the turn's scope.

Three kinds of ask wait. One from another connection (`lease`) waits at most `settle_seconds` for
the lane, then the overlap policy decides. One that replaces its own connection's turn (`succeed`)
is reserved synchronously, then entered as a lease by the task that will run it; its wait is bounded
by the earlier turn's nursery, which the caller has cancelled. And where holding is switched on, a
worker for whom its root has no turn left waits in the root's line (`lifecycle.waitlist`). Whatever
frees a place ends in `_freed`, which serves the lines.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import trio

from lifecycle.ask import AdmissionReason, AdmissionRefused, Ask, LeaseId, Refusal
from lifecycle.lanes import LaneStatistics
from lifecycle.ledger import Granted, Ledger, TurnStatistics, Waiting
from lifecycle.limits import Limits, Overlap
from lifecycle.memory import MemoryGate, MemoryStatistics
from lifecycle.scope import Cause, TurnScope
from lifecycle.waitlist import Waitlist, WaitlistStatistics
from lifecycle.workflows import Workflows, WorkflowsStatistics

RESTART_SECONDS = 2.0
"""From the end of one process until the next one admits."""


def _never_stalled() -> float:
    return 0.0


class Lease:
    """What an admitted turn holds, for the block that entered it.

    `nursery` is the turn's: the block waits for its tasks, then the lease is back. `scope` cancels
    the turn and says why. `root` is the one whose budget pays.
    """

    nursery: trio.Nursery

    def __init__(self, ledger: Ledger, granted: Granted, ask: Ask, scope: TurnScope) -> None:
        self._ledger = ledger
        self._since = trio.current_time()
        self.id = granted.lease_id
        self.root = None if granted.workflow is None else granted.workflow.root
        self.ask = ask
        self.scope = scope
        self.client_stalled_seconds: Callable[[], float] = _never_stalled

    def __repr__(self) -> str:
        lane = "none" if self.ask.lane is None else f"{self.ask.lane[:4]}…"
        return f"<Lease turn-{self.id} lane={lane} held {_seconds_since(self._since)}>"

    def grow(self, extra_bytes: int) -> bool:
        """Hold more memory; False when the gate is full, and nothing has changed."""
        return self._ledger.grow(self.id, extra_bytes)

    def sent(self) -> bool:
        """Charge a physical send to the workflow. False: there is none left for a further one."""
        return self._ledger.sent(self.id, trio.current_time())


def _seconds_since(then: float) -> str:
    """A failure is shown after its run, too, when no clock runs any more."""
    return f"{trio.current_time() - then:.1f} s" if trio.lowlevel.in_trio_run() else "no longer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketStatistics:
    active: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatistics:
    lanes: LaneStatistics
    turns: TurnStatistics
    websockets: WebsocketStatistics
    memory: MemoryStatistics
    workflows: WorkflowsStatistics
    lines: WaitlistStatistics


class Admission:
    def __init__(self, limits: Limits, ledger: Ledger | None = None) -> None:
        self.limits = limits
        self._ledger = ledger if ledger is not None else Ledger(limits)
        self._leases: dict[LeaseId, Lease] = {}
        self._granted: dict[Waiting, trio.Event] = {}
        self._lines = Waitlist(limits.workflow, self._ledger, self._undo)
        self._websockets = 0
        self._given_back = trio.lowlevel.ParkingLot()
        self.door_closed = trio.Event()
        self._drain_ends = 0.0
        self._succeeded = False

    def __repr__(self) -> str:
        door = "draining" if self.draining else "open"
        return f"<Admission {door}, {self._websockets} sockets, {self._ledger!r}>"

    @property
    def held(self) -> tuple[Lease, ...]:
        """The leases that turns hold now, in the order in which they were entered."""
        return tuple(self._leases.values())

    @property
    def memory(self) -> MemoryGate:
        return self._ledger.memory

    @property
    def workflows(self) -> Workflows:
        return self._ledger.workflows

    @asynccontextmanager
    async def lease(
        self, ask: Ask | Waiting, scope: TurnScope | None = None
    ) -> AsyncIterator[Lease]:
        """Hold a lease for the block, which has a nursery and waits for the tasks in it.

        The caller has entered `scope`; it is cancelled when another connection takes over. Raises
        AdmissionRefused before the block, with nothing held.
        """
        decision = ask if isinstance(ask, Waiting) else await self._lines.ask(ask)
        if isinstance(decision, Waiting):
            settles = not isinstance(ask, Waiting)
            decision = await self._wait_inherited(decision, settles=settles)
        if isinstance(decision, Refusal):
            raise self._refused(decision)
        what = ask.ask if isinstance(ask, Waiting) else ask
        lease = Lease(self._ledger, decision, what, scope or TurnScope())
        self._leases[lease.id] = lease
        try:
            async with trio.open_nursery() as lease.nursery:
                yield lease
        finally:  # held, raised or cancelled: the same way out, and synchronous
            del self._leases[lease.id]
            self._give_back(lease.id)

    def succeed(self, earlier: LeaseId, ask: Ask, instead_of: Waiting | None = None) -> Waiting:
        """Reserve `earlier`'s place for `ask`; enter the result with `lease`, or `abandon` it.

        Raises AdmissionRefused, with nothing changed: the earlier turn runs on.
        """
        decision = self._ledger.succeed(earlier, ask, trio.current_time(), instead_of)
        if isinstance(decision, Refusal):
            raise self._refused(decision)
        if instead_of is not None:
            self._freed()
        return decision

    def abandon(self, waiting: Waiting) -> None:
        """Free a reserved place, whether or not it was granted in the meantime."""
        if waiting.superseded:
            return
        if waiting.lease_id is None:
            self._ledger.abandon(waiting)
            self._freed()
        else:
            self._give_back(waiting.lease_id)

    @contextmanager
    def websocket(self) -> Iterator[None]:
        """Hold a place for an open WebSocket. Raises AdmissionRefused."""
        if self._ledger.draining:
            raise self._refused(Refusal(AdmissionReason.DRAINING))
        if self._websockets >= self.limits.websockets:
            raise AdmissionRefused(AdmissionReason.WEBSOCKETS_AT_CAPACITY)
        self._websockets += 1
        try:
            yield
        finally:
            self._websockets -= 1
            self._given_back.unpark_all()

    def close_door(self, drain_seconds: float, *, succeeded: bool = False) -> None:
        """Refuse every further ask; what is held runs on for up to `drain_seconds`. `succeeded`:
        the next process is there, and admits what is refused here."""
        self._ledger.draining = True
        self._succeeded = self._succeeded or succeeded
        self._drain_ends = trio.current_time() + drain_seconds
        self._lines.serve()
        self.door_closed.set()

    @property
    def draining(self) -> bool:
        return self._ledger.draining

    @property
    def drain_seconds_left(self) -> float:
        return max(0.0, self._drain_ends - trio.current_time())

    @property
    def drain_is_over(self) -> bool:
        """Whether a drain has begun, and its time has run out."""
        return self.draining and self.drain_seconds_left <= 0

    @property
    def away_seconds(self) -> float:
        """For how long no process may be there to admit what is refused during a drain."""
        return 0.0 if self._succeeded else self.drain_seconds_left + RESTART_SECONDS

    async def wait_idle(self) -> None:
        """Return when no lease is held and no WebSocket is open."""
        while self._ledger.active or self._websockets:
            await self._given_back.park()

    def statistics(self) -> AdmissionStatistics:
        books = self._ledger.statistics()
        return AdmissionStatistics(
            lanes=books.lanes,
            turns=books.turns,
            websockets=WebsocketStatistics(active=self._websockets, limit=self.limits.websockets),
            memory=books.memory,
            workflows=books.workflows,
            lines=self._lines.statistics(),
        )

    def _refused(self, refusal: Refusal) -> AdmissionRefused:
        """Carry a refusal out; only here is it known when a drain lets the next process admit."""
        draining = refusal.reason is AdmissionReason.DRAINING
        seconds = self.away_seconds if draining else refusal.retry_seconds
        return AdmissionRefused(refusal.reason, seconds)

    def _give_back(self, lease_id: LeaseId) -> None:
        waiting = self._ledger.give_back(lease_id)
        if waiting is not None and waiting in self._granted:
            self._granted[waiting].set()
        self._freed()

    def _freed(self) -> None:
        self._lines.serve()
        self._given_back.unpark_all()

    def _undo(self, decision: Granted | Waiting | Refusal) -> None:
        """Take back a decision that no task will enter; a refusal leaves nothing to undo."""
        if isinstance(decision, Granted):
            self._give_back(decision.lease_id)
        elif isinstance(decision, Waiting):
            self.abandon(decision)

    async def _wait_inherited(self, waiting: Waiting, *, settles: bool) -> Granted | Refusal:
        granted = self._granted[waiting] = trio.Event()
        try:
            if waiting.lease_id is None and settles:
                with trio.move_on_after(self.limits.settle_seconds):
                    await granted.wait()
                if waiting.lease_id is None and not self._may_displace(waiting):
                    return self._stop_waiting(waiting)
            if waiting.lease_id is None:
                await granted.wait()
        except BaseException:
            self.abandon(waiting)
            raise
        finally:
            del self._granted[waiting]
        assert waiting.lease_id is not None
        return Granted(waiting.lease_id, waiting.workflow)

    def _may_displace(self, waiting: Waiting) -> bool:
        """The lane is still held: cancel its holder, if the policy or its client allows that."""
        holder = self._leases.get(waiting.earlier)
        if holder is None:  # granted in this very step, its task has not run yet
            return False
        gone = holder.client_stalled_seconds() >= self.limits.client_gone_seconds
        if not gone and self.limits.overlap is not Overlap.REPLACE:
            return False
        holder.scope.cancel(Cause.DISPLACED)
        return True

    def _stop_waiting(self, waiting: Waiting) -> Granted | Refusal:
        if self.limits.overlap is Overlap.SHARE:
            decision = self._ledger.share(waiting, trio.current_time())
        else:
            self._ledger.abandon(waiting)
            decision = self._ledger.refuse(AdmissionReason.LANE_BUSY)
        self._freed()
        return decision
