"""Workflow: the budget of one root over a sliding window, pure and of fixed size.

Theory of operation
-------------------
A window is a ring of slots; what a slot counted is forgotten when the slot rolls off, so a ceiling
is one over the last ten minutes and not over a lifetime. Time is always handed in, in seconds that
never go back.

A turn has a *place* from the promise of its lease to its end: it is one of the turns at once, and
it announces one physical send, which counts as if it had happened until it does. So the first send
of a turn is never refused, and a turn that never sends has spent nothing. Every further send (a
retry, a failover) asks first. What is taken is derived from the places, so a place given back, or
withdrawn before its turn began, leaves nothing behind.

A turn that waits for another one of its root *inherits*: the two are one turn at once, and one
worker if either is one, whoever of them has it. Their sends are two: the earlier one may still
happen.

A child counts while it has a place, and once it was admitted until the slot in which its place was
reserved has rolled off.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from lifecycle.ask import AdmissionReason, Refusal, RootId, ThreadId
from lifecycle.limits import WorkflowLimits


@dataclass(slots=True, eq=False)
class Place:
    """What a turn takes of its root, from `slot` on. `announced` until its first send; `inherits`
    until the earlier place is given back; `child` where its thread counts as one."""

    root: RootId
    worker: bool
    thread: ThreadId | None = None
    child: ThreadId | None = None
    inherits: "Place | None" = None
    announced: bool = True
    slot: int = 0

    @property
    def adds_worker(self) -> bool:
        return self.worker and not (self.inherits is not None and self.inherits.worker)


@dataclass(slots=True)
class _Sends:
    slot: int
    workers: int = 0
    interactive: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStatistics:
    """Turns and workers at once; children and sends in the window; refusals ever."""

    active: int
    workers: int
    children: int
    worker_sends: int
    interactive_sends: int
    refused: int


class Workflow:
    """One root's budget. Every `now` is in seconds and never goes back."""

    def __init__(self, limits: WorkflowLimits) -> None:
        self._limits = limits
        self._slot = 0
        self._places: set[Place] = set()
        self._sends: deque[_Sends] = deque()  # oldest first
        self._admitted: dict[ThreadId, int] = {}  # child -> the slot of its latest place
        self.refused = 0

    @property
    def idle(self) -> bool:
        return not self._places

    # Deciding.

    def refusal(self, place: Place, now: float, freed: Place | None = None) -> Refusal | None:
        """Why `place` cannot be had, `freed` given back; the no that lasts longest comes first."""
        self._roll(now)
        others = [other for other in self._places if other is not freed]
        if place.child is not None and place.child not in self._admitted:
            children = self._children(others)
            if place.child not in children and len(children) >= self._limits.children:
                return Refusal(
                    AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED, self._until_child_leaves(now)
                )
        if not self._may_send(others, worker=place.worker):
            lifts = self._until_may_send(others, now, worker=place.worker)
            return Refusal(AdmissionReason.WORKFLOW_SENDS_EXHAUSTED, lifts)
        turns, workers = _turns([*others, place])
        if turns > self._limits.turns or workers > self._limits.turns - self._limits.kept:
            return Refusal(AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED)
        return None

    def at_ceiling(self, now: float) -> bool:
        """Whether an idle root has used up what it would find again if it were forgotten."""
        self._roll(now)
        return not self._may_send((), worker=True) or len(self._admitted) >= self._limits.children

    # Acting.

    def reserve(self, place: Place, now: float) -> None:
        """Take a place for which there was no refusal in this same step."""
        self._roll(now)
        place.slot = self._slot
        self._places.add(place)

    def admit(self, place: Place) -> None:
        """The turn of a reserved place begins: its child counts in the window."""
        if place.child is not None and not self._has_rolled_off(place.slot):
            latest = self._admitted.get(place.child, place.slot)
            self._admitted[place.child] = max(latest, place.slot)

    def leave(self, place: Place) -> None:
        """Give a place back, with the send that it may have announced. Twice raises KeyError."""
        self._places.remove(place)

    def sent(self, place: Place, now: float) -> bool:
        """Count a physical send that is about to happen. False: nothing is left for a further one,
        and nothing has changed."""
        self._roll(now)
        if not place.announced and not self._may_send(self._places, worker=place.worker):
            return False
        place.announced = False
        if not self._sends or self._sends[-1].slot != self._slot:
            self._sends.append(_Sends(self._slot))
        self._sends[-1].workers += place.worker
        self._sends[-1].interactive += not place.worker
        return True

    def clear(self) -> None:
        """Forgive the window. Turns that run keep their places."""
        self._sends.clear()
        self._admitted.clear()

    def statistics(self, now: float) -> WorkflowStatistics:
        self._roll(now)
        turns, workers = _turns(self._places)
        worker_sends, interactive_sends = self._spent(())
        return WorkflowStatistics(
            active=turns,
            workers=workers,
            children=len(self._children(self._places)),
            worker_sends=worker_sends,
            interactive_sends=interactive_sends,
            refused=self.refused,
        )

    # The window.

    def _roll(self, now: float) -> None:
        slot = self._limits.slot(now)
        if slot == self._slot:
            return
        self._slot = slot
        while self._sends and self._has_rolled_off(self._sends[0].slot):
            self._sends.popleft()
        for child in [x for x, then in self._admitted.items() if self._has_rolled_off(then)]:
            del self._admitted[child]

    def _has_rolled_off(self, slot: int) -> bool:
        return slot <= self._slot - self._limits.slots

    def _until_rolled_off(self, slot: int, now: float) -> float:
        return (slot + self._limits.slots) * self._limits.slot_seconds - now

    def _children(self, places: Collection[Place]) -> set[ThreadId]:
        return self._admitted.keys() | {place.child for place in places if place.child is not None}

    def _until_child_leaves(self, now: float) -> float:
        """Seconds until the first one without a turn is forgotten; a window if all have one."""
        live = {place.child for place in self._places}
        idle = [slot for child, slot in self._admitted.items() if child not in live]
        return self._until_rolled_off(min(idle), now) if idle else self._limits.window_seconds

    def _spent(self, places: Collection[Place]) -> tuple[int, int]:
        """Sends of workers and of interactive turns: those counted, and those announced."""
        announced = [place.worker for place in places if place.announced]
        workers = sum(sends.workers for sends in self._sends) + sum(announced)
        interactive = sum(sends.interactive for sends in self._sends)
        return workers, interactive + len(announced) - sum(announced)

    def _may_send(self, places: Collection[Place], *, worker: bool) -> bool:
        return self._fits(*self._spent(places), worker=worker)

    def _fits(self, workers: int, interactive: int, *, worker: bool) -> bool:
        """Whether one more send fits: workers have a share of the whole, the rest is kept."""
        limits = self._limits
        if worker and workers >= limits.sends:
            return False
        return workers + interactive < limits.sends + limits.sends_kept

    def _until_may_send(self, places: Collection[Place], now: float, *, worker: bool) -> float:
        """Seconds until enough slots have rolled off; a window if those announced fill it alone."""
        workers, interactive = self._spent(places)
        for sends in self._sends:
            workers -= sends.workers
            interactive -= sends.interactive
            if self._fits(workers, interactive, worker=worker):
                return self._until_rolled_off(sends.slot, now)
        return self._limits.window_seconds


def _turns(places: Collection[Place]) -> tuple[int, int]:
    """Turns at once, and how many of them are workers'."""
    return (
        sum(place.inherits is None for place in places),
        sum(place.adds_worker for place in places),
    )
