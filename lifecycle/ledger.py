"""Ledger: who holds a lane, a permit, a workflow's place and memory, decided in one step for all.

Rules for this file: pure (no trio, no clock, no I/O); every count is derived from what is held, or
is a total that only grows (lanes are counted in `lanes.py`, bytes in `memory.py`, what a root
spends in `budget.py`); a refusal changes nothing but those totals.

Theory of operation
-------------------
A *lease* is held or it is not. Asking for one has three answers: granted, refused, or *waiting*:
the lane is held by an earlier lease and this ask will succeed it. A waiting ask is already paid
for: it inherits the earlier lease's permit, lane and workflow place, and the ledger has set aside
what it needs beyond them (a lane if it leaves none behind, a place if its root is another one, its
first send, the bytes by which its body is larger). So no ask in between can take its place, and
passing on cannot fail: `give_back` releases the earlier lease and grants the waiting one before it
returns.

A lane has at most one waiting successor, and so has a lease, whichever lane that one names. Two
ways lead there: another connection asks for a lane that is held (`ask`), or the connection that
holds a lease replaces its own turn (`succeed`). The second may name another lane; then that lane
must be free.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from lifecycle.ask import LANE_ID_BYTES, AdmissionReason, Ask, LaneId, LeaseId, Refusal
from lifecycle.budget import Place
from lifecycle.lanes import NO_PLACES, LaneCount, Lanes, LaneStatistics, places_to_open
from lifecycle.limits import Limits
from lifecycle.memory import MemoryGate, MemoryStatistics, Reservation
from lifecycle.workflows import Workflows, WorkflowsStatistics


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease, and the place of the root that pays for it to its end."""

    lease_id: LeaseId
    workflow: Place | None


@dataclass(slots=True, eq=False)
class Waiting:
    """An ask that will succeed `earlier`; `lease_id` is set in the step that grants it.

    `superseded`: a later ask of the same connection took its place, and nothing is set aside.
    """

    ask: Ask
    earlier: LeaseId
    extra: Reservation  # bytes beyond those that it inherits
    places: LaneCount  # lanes beyond the one that it inherits
    workflow: Place | None
    lease_id: LeaseId | None = None
    superseded: bool = False


@dataclass(slots=True)
class _Held:
    ask: Ask
    memory: Reservation
    workflow: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStatistics:
    active: int
    peak: int
    admitted: int
    refused: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    lanes: LaneStatistics
    turns: TurnStatistics
    memory: MemoryStatistics
    workflows: WorkflowsStatistics


_LANE_REFUSALS = frozenset({AdmissionReason.LANE_BUSY, AdmissionReason.LANES_AT_CAPACITY})
_WORKFLOW_REFUSALS = frozenset(x for x in AdmissionReason if x.value.startswith("workflow_"))

Observer = Callable[[str, LeaseId], None]
"""Told "released" and "admitted", in the order in which they happen."""


class Ledger:
    """What one process has granted. All methods are synchronous; misuse raises.

    Every `now` is in seconds and never goes back.
    """

    def __init__(self, limits: Limits, observe: Observer = lambda _what, _lease_id: None) -> None:
        self._limits = limits
        self._observe = observe
        self.memory = MemoryGate(limits.memory_bytes)
        self.workflows = Workflows(limits.workflow)
        self.draining = False
        self._ids = count(1)
        self._held: dict[LeaseId, _Held] = {}
        self._waiting: dict[LeaseId, Waiting] = {}  # by the lease that each succeeds
        self._lanes = Lanes(limits)
        self._totals = Counter[str]()
        self._peak_turns = 0

    def __repr__(self) -> str:
        turns, waiting = len(self._held), len(self._waiting)
        return f"<Ledger {turns} turns, {waiting} waiting, {self._lanes!r}, {self.memory!r}>"

    @property
    def active(self) -> int:
        return len(self._held)

    def ask(self, ask: Ask, now: float) -> Granted | Waiting | Refusal:
        """Decide in SPEC's order: draining, lane, lane capacity, turns, workflow, memory."""
        if self.draining:
            return self.refuse(AdmissionReason.DRAINING)
        if ask.lane is not None and self._lanes.in_use(ask.lane):
            # Two things bar the way: every lease of this lane has a successor already, whichever
            # lanes those name; or the successor of some lease is to come to this lane.
            free = self._lanes.holders(ask.lane) - self._waiting.keys()
            if not free or self._lanes.followed(ask.lane) is not None:
                return self.refuse(AdmissionReason.LANE_BUSY)
            return self._wait_for(min(free), ask, NO_PLACES, now)
        return self._admit(ask, now)

    def succeed(
        self, earlier: LeaseId, ask: Ask, now: float, instead_of: Waiting | None = None
    ) -> Waiting | Refusal:
        """Let `ask` take over `earlier` when that is given back; `instead_of` gives way to it."""
        if self.draining:
            return self.refuse(AdmissionReason.DRAINING)
        if instead_of is not None and instead_of.lease_id is not None:  # it is the earlier one now
            earlier, instead_of = instead_of.lease_id, None
        held = self._held[earlier].ask.lane
        # The caller knows of one successor at most. Another one here, such as an ask from another
        # connection that settles, was promised the lane first.
        if self._waiting.get(earlier) is not instead_of or self._is_taken(ask.lane, held, earlier):
            return self.refuse(AdmissionReason.LANE_BUSY)
        places = self._lanes.beyond(ask, held)
        freed = instead_of.places if instead_of is not None else NO_PLACES
        if not self._lanes.fit(places, freed):
            return self.refuse(AdmissionReason.LANES_AT_CAPACITY)
        return self._wait_for(earlier, ask, places, now, instead_of)

    def share(self, waiting: Waiting, now: float) -> Granted | Refusal:
        """Stop waiting and run beside the holder of the lane, if there is room for both."""
        self.abandon(waiting)
        return self._admit(waiting.ask, now)

    def abandon(self, waiting: Waiting) -> None:
        """Free what a waiting ask had set aside. It must still be waiting."""
        if self._waiting.get(waiting.earlier) is not waiting:
            raise RuntimeError("this ask waits no longer: it was granted, superseded or abandoned")
        self._forget(waiting)
        waiting.extra.give_back()
        self.workflows.leave(waiting.workflow)

    def give_back(self, lease_id: LeaseId) -> Waiting | None:
        """Release a lease; returns the waiting ask that holds it from here, if there is one."""
        held = self._held.pop(lease_id)  # a second give_back raises KeyError
        waiting = self._waiting.get(lease_id)
        # Everything is released before the successor is granted, so no peak counts both. Nothing
        # else can take what was released in between, because nothing here awaits.
        if held.ask.lane is not None:
            self._lanes.leave(held.ask.lane, lease_id)
        held.memory.give_back()
        self.workflows.leave(held.workflow, None if waiting is None else waiting.workflow)
        self._observe("released", lease_id)
        if waiting is not None:
            # What `extra` lacks is at most what was released above, so this cannot fail.
            fitted = waiting.extra.resize(waiting.ask.body_bytes)
            assert fitted, "a waiting ask has its bytes set aside"
            waiting.lease_id = self._grant(waiting.ask, waiting.extra, waiting.workflow)
            self._forget(waiting)
        return waiting

    def grow(self, lease_id: LeaseId, extra_bytes: int) -> bool:
        """Hold more bytes under a lease; False when they do not fit, and nothing has changed."""
        if extra_bytes < 0:  # a successor counts on what it is to inherit
            raise ValueError("a lease does not shrink")
        return self._held[lease_id].memory.grow(extra_bytes)

    def sent(self, lease_id: LeaseId, now: float) -> bool:
        """Charge a physical send to the lease's root; False when it must not happen."""
        return self.workflows.sent(self._held[lease_id].workflow, now)

    def lacks_only_a_turn_of_its_root(self, ask: Ask, now: float) -> bool:
        """Whether `ask` would be refused because its root has no turn left, and only for that."""
        taken = ask.lane is not None and self._lanes.in_use(ask.lane)
        refused = None if self.draining or taken else self._refusal(ask, now)
        return (
            refused is not None and refused.reason is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED
        )

    def holders(self, lane: LaneId) -> frozenset[LeaseId]:
        return self._lanes.holders(lane)

    def statistics(self) -> LedgerStatistics:
        lanes, totals = self._lanes, self._totals
        return LedgerStatistics(
            lanes=LaneStatistics(
                active=lanes.active,
                peak=lanes.peak,
                peak_retained_bytes=lanes.peak * LANE_ID_BYTES,
                admitted=totals["lanes_admitted"],
                refused=totals["lanes_refused"],
                retained_bytes=lanes.active * LANE_ID_BYTES,
                limit=self._limits.lanes,
            ),
            turns=TurnStatistics(
                active=len(self._held),
                peak=self._peak_turns,
                admitted=totals["turns_admitted"],
                refused=totals["turns_refused"],
                limit=self._limits.turns,
            ),
            memory=self.memory.statistics(),
            workflows=self.workflows.statistics(),
        )

    def _is_taken(self, lane: LaneId | None, held: LaneId | None, earlier: LeaseId) -> bool:
        """Whether others hold `lane` or will, so that the successor of `earlier` cannot."""
        if lane is None or not self._lanes.in_use(lane):
            return False
        # A lane in use is free to this successor in two cases: it is promised to the successor of
        # `earlier` already, whose place this ask takes; or `earlier` itself is in it.
        followed = self._lanes.followed(lane)
        return followed != earlier if followed is not None else lane != held

    def _refusal(self, ask: Ask, now: float) -> Refusal | None:
        """Why an ask that succeeds no lease is refused, its memory apart."""
        opens = ask.lane is not None and not self._lanes.in_use(ask.lane)
        if opens and not self._lanes.fit(places_to_open(ask)):
            return Refusal(AdmissionReason.LANES_AT_CAPACITY)
        if len(self._held) >= self._limits.turns:
            return Refusal(AdmissionReason.TURNS_AT_CAPACITY)
        return self.workflows.refusal(ask, now)

    # Acting.

    def _admit(self, ask: Ask, now: float) -> Granted | Refusal:
        refused = self._refusal(ask, now)
        if refused is not None:
            return self._count(refused, ask)
        memory = self.memory.reserve(ask.body_bytes)
        if memory is None:
            return self.refuse(AdmissionReason.MEMORY_AT_CAPACITY)
        workflow = self.workflows.reserve(ask, now)
        return Granted(self._grant(ask, memory, workflow), workflow)

    def _wait_for(
        self,
        earlier: LeaseId,
        ask: Ask,
        places: LaneCount,
        now: float,
        instead_of: Waiting | None = None,
    ) -> Waiting | Refusal:
        held = self._held[earlier]
        gives_way = None if instead_of is None else instead_of.workflow
        refused = self.workflows.refusal(ask, now, held.workflow, gives_way)
        if refused is not None:
            return self._count(refused, ask)
        beyond = max(0, ask.body_bytes - held.memory.size)
        freed = 0 if instead_of is None else instead_of.extra.size
        if beyond > freed and not self.memory.fits(beyond - freed):
            return self.refuse(AdmissionReason.MEMORY_AT_CAPACITY)
        if instead_of is not None:  # from here on nothing may fail: its place is gone
            self.abandon(instead_of)
            instead_of.superseded = True
        extra = self.memory.reserve(beyond)
        assert extra is not None, "it was seen to fit"
        workflow = self.workflows.reserve(ask, now, held.workflow)
        waiting = self._waiting[earlier] = Waiting(ask, earlier, extra, places, workflow)
        if ask.lane is not None:
            self._lanes.follow(ask.lane, earlier, places, worker=ask.worker)
        return waiting

    def _grant(self, ask: Ask, memory: Reservation, workflow: Place | None) -> LeaseId:
        lease_id = LeaseId(next(self._ids))
        self._held[lease_id] = _Held(ask, memory, workflow)
        self.workflows.admit(workflow)
        if ask.lane is not None:
            self._lanes.enter(ask.lane, lease_id, worker=ask.worker)
            self._totals["lanes_admitted"] += 1
        self._totals["turns_admitted"] += 1
        self._peak_turns = max(self._peak_turns, len(self._held))
        self._observe("admitted", lease_id)
        return lease_id

    def refuse(self, reason: AdmissionReason) -> Refusal:
        """Count a refusal; what was decided elsewhere (a settling time ran out) counts here too."""
        return self._count(Refusal(reason))

    def _count(self, refused: Refusal, ask: Ask | None = None) -> Refusal:
        self._totals["turns_refused"] += 1
        self._totals["lanes_refused"] += refused.reason in _LANE_REFUSALS
        if ask is not None and refused.reason in _WORKFLOW_REFUSALS:
            self.workflows.count_refusal(ask)
        return refused

    def _forget(self, waiting: Waiting) -> None:
        del self._waiting[waiting.earlier]
        if waiting.ask.lane is not None:
            self._lanes.unfollow(waiting.ask.lane, waiting.places)
