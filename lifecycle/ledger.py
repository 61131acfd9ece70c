"""Ledger: who holds a lane, a permit and memory, decided in one synchronous step for all of them.

Rules for this file: pure (no trio, no clock, no I/O); every count is derived from what is held, or
is a total that only grows; a refusal changes nothing but those totals.

Theory of operation
-------------------
A *lease* is held or it is not. Asking for one has three answers: granted, refused, or *waiting*:
the lane is held by an earlier lease and this ask will succeed it. A waiting ask is already paid
for: it inherits the earlier lease's permit and lane, and the ledger has set aside what it needs
beyond them (a lane of its own if it names another one, the bytes by which its body is larger). So
nobody who asks in between can take its place, and passing on cannot fail: `give_back` releases the
earlier lease and grants the waiting one before it returns.

A lane has at most one waiting successor, and so has a lease. Two ways lead there: another
connection asks for a lane that is held (`ask`), or the connection that holds a lease replaces its
own turn (`succeed`). The second may name another lane; then that lane must be free.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from lifecycle.ask import LANE_ID_BYTES, Ask, LaneId, LeaseId
from lifecycle.errors import Refusal
from lifecycle.limits import Limits
from lifecycle.memory import MemoryGate, MemoryStatistics, Reservation


@dataclass(frozen=True, slots=True)
class Granted:
    lease_id: LeaseId


@dataclass(frozen=True, slots=True)
class Refused:
    refusal: Refusal


@dataclass(slots=True, eq=False)
class Waiting:
    """An ask that will succeed `earlier`; `lease_id` is set in the step that grants it.

    `superseded`: a later ask of the same connection took its place, and nothing is set aside.
    """

    ask: Ask
    earlier: LeaseId
    extra: Reservation  # bytes beyond those that it inherits
    lease_id: LeaseId | None = None
    superseded: bool = False


@dataclass(slots=True)
class _Held:
    ask: Ask
    memory: Reservation


@dataclass(slots=True)
class _Lane:
    worker: bool
    holders: set[LeaseId] = field(default_factory=set)
    successor: Waiting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatistics:
    active: int
    peak: int
    peak_retained_bytes: int
    admitted: int
    refused: int
    retained_bytes: int
    limit: int


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


_LANE_REFUSALS = frozenset({Refusal.LANE_BUSY, Refusal.LANES_AT_CAPACITY})

Observer = Callable[[str, LeaseId], None]
"""Told "released" and "admitted", in the order in which they happen."""


class Ledger:
    """The books of one process. All methods are synchronous; misuse raises."""

    def __init__(self, limits: Limits, observe: Observer = lambda _what, _lease_id: None) -> None:
        self._limits = limits
        self._observe = observe
        self.memory = MemoryGate(limits.memory_bytes)
        self.draining = False
        self._ids = count(1)
        self._held: dict[LeaseId, _Held] = {}
        self._waiting: dict[LeaseId, Waiting] = {}  # by the lease that each succeeds
        self._lanes: dict[LaneId, _Lane] = {}
        self._totals = Counter[str]()
        self._peak_lanes = 0
        self._peak_turns = 0

    @property
    def active(self) -> int:
        return len(self._held)

    def ask(self, ask: Ask) -> Granted | Waiting | Refused:
        """Decide in SPEC's order: draining, lane, lane capacity, turns, memory."""
        if self.draining:
            return self.refuse(Refusal.DRAINING)
        lane = self._lanes.get(ask.lane) if ask.lane is not None else None
        if lane is not None:
            if lane.successor is not None:
                return self.refuse(Refusal.LANE_BUSY)
            return self._wait_behind(next(iter(lane.holders)), ask)
        return self._admit(ask)

    def succeed(
        self, earlier: LeaseId, ask: Ask, instead_of: Waiting | None = None
    ) -> Waiting | Refused:
        """Let `ask` take over `earlier` when that is given back; `instead_of` gives way to it."""
        if self.draining:
            return self.refuse(Refusal.DRAINING)
        if self._waiting.get(earlier) is not instead_of:
            return self.refuse(Refusal.LANE_BUSY)
        if ask.lane is not None:
            refusal = self._succession_refusal(ask, self._held[earlier].ask.lane, instead_of)
            if refusal is not None:
                return self.refuse(refusal)
        return self._wait_behind(earlier, ask, instead_of)

    def share(self, waiting: Waiting) -> Granted | Refused:
        """Stop waiting and run beside the holder of the lane, if there is room for both."""
        self.abandon(waiting)
        return self._admit(waiting.ask)

    def abandon(self, waiting: Waiting) -> None:
        """Free what a waiting ask had set aside. It must not have been granted."""
        if waiting.lease_id is not None:
            raise RuntimeError("granted already: give the lease back instead")
        self._forget(waiting)
        waiting.extra.give_back()

    def give_back(self, lease_id: LeaseId) -> Waiting | None:
        """Release a lease; returns the waiting ask that holds it from here, if there is one."""
        held = self._held.pop(lease_id)  # a second give_back raises KeyError
        waiting = self._waiting.get(lease_id)
        if waiting is not None:
            self._forget(waiting)
        self._leave_lane(held.ask.lane, lease_id)
        held.memory.give_back()
        self._observe("released", lease_id)
        if waiting is not None:
            # What `extra` lacks is at most what was released above, so this cannot fail.
            fitted = waiting.extra.resize(waiting.ask.body_bytes)
            assert fitted, "a waiting ask has its bytes set aside"
            waiting.lease_id = self._grant(waiting.ask, waiting.extra)
        return waiting

    def grow(self, lease_id: LeaseId, extra_bytes: int) -> bool:
        """Hold more bytes under a lease; False when they do not fit, and nothing has changed."""
        return self._held[lease_id].memory.grow(extra_bytes)

    def holders(self, lane: LaneId) -> frozenset[LeaseId]:
        return frozenset(self._lanes[lane].holders) if lane in self._lanes else frozenset()

    def statistics(self) -> LedgerStatistics:
        active = sum(1 for lane in self._lanes.values() if lane.holders)
        totals = self._totals
        return LedgerStatistics(
            lanes=LaneStatistics(
                active=active,
                peak=self._peak_lanes,
                peak_retained_bytes=self._peak_lanes * LANE_ID_BYTES,
                admitted=totals["lanes_admitted"],
                refused=totals["lanes_refused"],
                retained_bytes=active * LANE_ID_BYTES,
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
        )

    # Deciding: these return a refusal or None, and change nothing.

    def _lane_refusal(self, ask: Ask) -> Refusal | None:
        """The lane named by `ask` is to be opened: is there one left for it?"""
        assert ask.lane is not None
        if ask.lane in self._lanes:
            return Refusal.LANE_BUSY
        workers = sum(1 for lane in self._lanes.values() if lane.worker)
        kept = ask.worker and workers >= self._limits.lanes - self._limits.lanes_kept
        if kept or len(self._lanes) >= self._limits.lanes:
            return Refusal.LANES_AT_CAPACITY
        return None

    def _succession_refusal(
        self, ask: Ask, held: LaneId | None, instead_of: Waiting | None
    ) -> Refusal | None:
        """`ask` is to follow a lease in lane `held`: may it have the lane that it names?"""
        assert ask.lane is not None
        lane = self._lanes.get(ask.lane)
        if lane is not None and lane.successor is not None:
            return None if lane.successor is instead_of else Refusal.LANE_BUSY
        return None if ask.lane == held else self._lane_refusal(ask)

    # Acting.

    def _admit(self, ask: Ask) -> Granted | Refused:
        if ask.lane is not None and ask.lane not in self._lanes:
            refusal = self._lane_refusal(ask)
            if refusal is not None:
                return self.refuse(refusal)
        if len(self._held) >= self._limits.turns:
            return self.refuse(Refusal.TURNS_AT_CAPACITY)
        memory = self.memory.reserve(ask.body_bytes)
        if memory is None:
            return self.refuse(Refusal.MEMORY_AT_CAPACITY)
        return Granted(self._grant(ask, memory))

    def _wait_behind(
        self, earlier: LeaseId, ask: Ask, instead_of: Waiting | None = None
    ) -> Waiting | Refused:
        beyond = max(0, ask.body_bytes - self._held[earlier].memory.size)
        freed = 0 if instead_of is None else instead_of.extra.size
        if beyond > freed and not self.memory.fits(beyond - freed):
            return self.refuse(Refusal.MEMORY_AT_CAPACITY)
        if instead_of is not None:
            self.abandon(instead_of)
            instead_of.superseded = True
        extra = self.memory.reserve(beyond)
        assert extra is not None, "it was seen to fit"
        waiting = Waiting(ask, earlier, extra)
        self._waiting[earlier] = waiting
        if ask.lane is not None:
            self._lanes.setdefault(ask.lane, _Lane(ask.worker)).successor = waiting
        return waiting

    def _grant(self, ask: Ask, memory: Reservation) -> LeaseId:
        lease_id = LeaseId(next(self._ids))
        self._held[lease_id] = _Held(ask, memory)
        if ask.lane is not None:
            self._lanes.setdefault(ask.lane, _Lane(ask.worker)).holders.add(lease_id)
            self._totals["lanes_admitted"] += 1
        self._totals["turns_admitted"] += 1
        self._peak_turns = max(self._peak_turns, len(self._held))
        self._peak_lanes = max(self._peak_lanes, sum(1 for x in self._lanes.values() if x.holders))
        self._observe("admitted", lease_id)
        return lease_id

    def refuse(self, refusal: Refusal) -> Refused:
        """Count a refusal; what was decided elsewhere (a settling time ran out) counts here too."""
        self._totals["turns_refused"] += 1
        self._totals["lanes_refused"] += refusal in _LANE_REFUSALS
        return Refused(refusal)

    def _forget(self, waiting: Waiting) -> None:
        del self._waiting[waiting.earlier]
        if waiting.ask.lane is not None:
            self._lanes[waiting.ask.lane].successor = None
            self._close_if_unused(waiting.ask.lane)

    def _leave_lane(self, lane: LaneId | None, lease_id: LeaseId) -> None:
        if lane is not None:
            self._lanes[lane].holders.remove(lease_id)
            self._close_if_unused(lane)

    def _close_if_unused(self, lane: LaneId) -> None:
        entry = self._lanes[lane]
        if not entry.holders and entry.successor is None:
            del self._lanes[lane]
