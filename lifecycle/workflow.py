"""Workflow: the budget of one root over a sliding window, pure and of fixed size.

Theory of operation
-------------------
A window is a ring of slots; what a slot counted is forgotten when the slot rolls off, so a ceiling
is one over the last ten minutes and not over a lifetime. Time is always handed in.

A turn takes a *place*: one of the turns at once. It also announces one physical send, which
becomes a counted one when it happens; a turn that never sends has spent nothing. Every further send
(a retry, a failover) asks first. A child is counted in the slot in which it was last admitted, so
at most as many are remembered as the ceiling allows.
"""

from collections import deque
from dataclasses import dataclass

from lifecycle.ask import ThreadId
from lifecycle.errors import Refusal
from lifecycle.limits import WorkflowLimits


@dataclass(slots=True)
class _Slot:
    number: int
    workers: int = 0
    interactive: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStatistics:
    active: int
    workers: int
    children: int
    worker_sends: int
    interactive_sends: int
    refused: int


class Workflow:
    """One root's budget. Every method takes `now`, in seconds that never go back."""

    def __init__(self, limits: WorkflowLimits) -> None:
        self._limits = limits
        self._width = limits.window_seconds / limits.slots
        self._slots: deque[_Slot] = deque()  # oldest first
        self._children: dict[ThreadId, int] = {}  # -> number of the slot; oldest first
        self._active = 0
        self._active_workers = 0
        self._announced = 0
        self._announced_workers = 0
        self.refused = 0

    def refusal(
        self, *, worker: bool, child: ThreadId | None, inherits: bool, now: float
    ) -> Refusal | None:
        """Why a turn cannot have a place; `inherits`: it takes over one of its own kind."""
        self._roll(now)
        limits = self._limits
        if not inherits:
            full = self._active >= limits.turns
            if full or (worker and self._active_workers >= limits.turns - limits.kept):
                return Refusal.WORKFLOW_CONCURRENCY_EXHAUSTED
        new = child is not None and child not in self._children
        if new and len(self._children) >= limits.children:
            return Refusal.WORKFLOW_CHILDREN_EXHAUSTED
        if not self._may_send(worker=worker):
            return Refusal.WORKFLOW_SENDS_EXHAUSTED
        return None

    def enter(self, *, worker: bool, child: ThreadId | None, inherits: bool, now: float) -> None:
        """Take a place, announce a send, count the child. `refusal` has said None."""
        self._announced += 1
        self._announced_workers += worker
        if not inherits:
            self._active += 1
            self._active_workers += worker
        if child is not None:
            self._children.pop(child, None)  # to the young end
            self._children[child] = self._number(now)

    def leave(self, *, worker: bool, announced: bool, stays: bool) -> None:
        """Give the place back, or leave it to an heir (`stays`); an unsent send is withdrawn."""
        if announced:
            self._announced -= 1
            self._announced_workers -= worker
        if not stays:
            self._active -= 1
            self._active_workers -= worker

    def sent(self, *, worker: bool, announced: bool, now: float) -> bool:
        """A physical send is about to happen. False: a further one that nothing is left for."""
        self._roll(now)
        if announced:
            self._announced -= 1
            self._announced_workers -= worker
        elif not self._may_send(worker=worker):
            return False
        number = self._number(now)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
        if worker:
            self._slots[-1].workers += 1
        else:
            self._slots[-1].interactive += 1
        return True

    def clear(self) -> None:
        """Forgive the window. Turns that run keep their places."""
        self._slots.clear()
        self._children.clear()

    def retry_seconds(self, refusal: Refusal, *, worker: bool, now: float) -> float:
        """When the window will have rolled far enough for this refusal to lift."""
        self._roll(now)
        if refusal is Refusal.WORKFLOW_CHILDREN_EXHAUSTED:
            oldest = next(iter(self._children.values()), self._number(now))
            return self._rolls_off(oldest) - now
        workers, interactive = self._spent()
        for slot in self._slots:
            workers -= slot.workers
            interactive -= slot.interactive
            if self._within(workers, interactive, worker=worker):
                return self._rolls_off(slot.number) - now
        return self._limits.window_seconds

    def idle(self) -> bool:
        return self._active == 0 and self._announced == 0

    def unused(self, now: float) -> bool:
        """Nothing in the window: forgetting this root forgives nothing."""
        self._roll(now)
        return not self._slots and not self._children

    def at_ceiling(self, now: float) -> bool:
        """Forgetting this root would hand it a fresh allowance that it has used up."""
        self._roll(now)
        workers, interactive = self._spent()
        within = self._within(workers, interactive, worker=True)
        return not within or len(self._children) >= self._limits.children

    def statistics(self, now: float) -> WorkflowStatistics:
        self._roll(now)
        return WorkflowStatistics(
            active=self._active,
            workers=self._active_workers,
            children=len(self._children),
            worker_sends=sum(slot.workers for slot in self._slots),
            interactive_sends=sum(slot.interactive for slot in self._slots),
            refused=self.refused,
        )

    def _may_send(self, *, worker: bool) -> bool:
        workers, interactive = self._spent()
        return self._within(workers, interactive, worker=worker)

    def _spent(self) -> tuple[int, int]:
        """Sends of workers and of interactive turns: counted ones and announced ones."""
        workers = sum(slot.workers for slot in self._slots) + self._announced_workers
        interactive = sum(slot.interactive for slot in self._slots)
        return workers, interactive + self._announced - self._announced_workers

    def _within(self, workers: int, interactive: int, *, worker: bool) -> bool:
        """Whether one more send fits: workers have a share of the whole, the rest is kept."""
        limits = self._limits
        if worker and workers >= limits.sends:
            return False
        return workers + interactive < limits.sends + limits.sends_kept

    def _number(self, now: float) -> int:
        return int(now // self._width)

    def _rolls_off(self, number: int) -> float:
        return (number + self._limits.slots) * self._width

    def _roll(self, now: float) -> None:
        oldest = self._number(now) - self._limits.slots
        while self._slots and self._slots[0].number <= oldest:
            self._slots.popleft()
        while self._children:
            child, number = next(iter(self._children.items()))
            if number > oldest:
                break
            del self._children[child]
