"""Lanes: which are in use, by whom, and whether there is one left to be opened.

Rules for this file: pure, and the only place that counts lanes.

Theory of operation
-------------------
A lane is in use while a lease is held in it, or while a waiting ask is to follow there. It is a
worker's lane if a worker opened it, and stays so while it passes from lease to lease.

Lanes are limited in number, and so are workers' lanes. A waiting ask inherits the lane that its
earlier lease will leave, whether or not it names the same one: no other ask can enter a lane whose
only lease has a successor, so it is guaranteed to close. Only what it needs beyond that is set
aside for it, as *places*. So the limits hold whichever of the waiting asks are granted or
abandoned.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from lifecycle.ask import Ask, LaneId, LeaseId
from lifecycle.limits import Limits


class LaneCount(NamedTuple):
    """A number of lanes, and how many of them are workers' lanes."""

    lanes: int
    workers: int


NO_PLACES = LaneCount(0, 0)


def places_to_open(ask: Ask) -> LaneCount:
    return LaneCount(1, int(ask.worker))


@dataclass(slots=True)
class _Lane:
    worker: bool
    holders: set[LeaseId] = field(default_factory=set)
    followed: LeaseId | None = None  # the lease, here or elsewhere, whose successor comes here


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatistics:
    active: int
    peak: int
    peak_retained_bytes: int
    admitted: int
    refused: int
    retained_bytes: int
    limit: int


class Lanes:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[LaneId, _Lane] = {}
        self._held = NO_PLACES
        self._set_aside = NO_PLACES
        self.peak = 0

    def __repr__(self) -> str:
        return f"<Lanes {self._held.lanes} held, {self._set_aside.lanes} set aside>"

    @property
    def active(self) -> int:
        """Lanes in which a lease is held."""
        return self._held.lanes

    def holders(self, lane: LaneId) -> frozenset[LeaseId]:
        return frozenset(self._lanes[lane].holders) if lane in self._lanes else frozenset()

    def in_use(self, lane: LaneId) -> bool:
        return lane in self._lanes

    def followed(self, lane: LaneId) -> LeaseId | None:
        """The lease whose successor is to come to this lane, if there is one."""
        return self._lanes[lane].followed if lane in self._lanes else None

    # Deciding.

    def beyond(self, ask: Ask, held: LaneId | None) -> LaneCount:
        """What `ask` needs beyond the lane that it inherits when a lease in `held` passes to it."""
        if ask.lane is None or ask.lane == held:
            return NO_PLACES
        left = self._lanes[held] if held is not None else None
        if left is None or len(left.holders) > 1:  # nothing is left behind by that lease
            return places_to_open(ask)
        return LaneCount(0, int(ask.worker and not left.worker))

    def fit(self, needed: LaneCount, freed: LaneCount = NO_PLACES) -> bool:
        """Whether `needed` more can be taken, once `freed` are no longer set aside."""
        limits = self._limits
        lanes = self._held.lanes + self._set_aside.lanes - freed.lanes + needed.lanes
        workers = self._held.workers + self._set_aside.workers - freed.workers + needed.workers
        return not (
            (needed.lanes and lanes > limits.lanes)
            or (needed.workers and workers > limits.lanes - limits.lanes_kept)
        )

    # Acting.

    def enter(self, lane: LaneId, lease_id: LeaseId, *, worker: bool) -> None:
        entry = self._open(lane, worker=worker)
        if not entry.holders:
            self._held = LaneCount(self._held.lanes + 1, self._held.workers + entry.worker)
            self.peak = max(self.peak, self._held.lanes)
        entry.holders.add(lease_id)

    def leave(self, lane: LaneId, lease_id: LeaseId) -> None:
        entry = self._lanes[lane]
        entry.holders.remove(lease_id)
        if not entry.holders:
            self._held = LaneCount(self._held.lanes - 1, self._held.workers - entry.worker)
            self._close_if_unused(lane, entry)

    def follow(self, lane: LaneId, earlier: LeaseId, places: LaneCount, *, worker: bool) -> None:
        """The successor of `earlier` is to come to `lane`; set aside its places."""
        self._open(lane, worker=worker).followed = earlier
        aside = self._set_aside
        self._set_aside = LaneCount(aside.lanes + places.lanes, aside.workers + places.workers)

    def unfollow(self, lane: LaneId, places: LaneCount) -> None:
        entry = self._lanes[lane]
        entry.followed = None
        aside = self._set_aside
        self._set_aside = LaneCount(aside.lanes - places.lanes, aside.workers - places.workers)
        self._close_if_unused(lane, entry)

    def _open(self, lane: LaneId, *, worker: bool) -> _Lane:
        entry = self._lanes.get(lane)
        if entry is None:
            entry = self._lanes[lane] = _Lane(worker)
        return entry

    def _close_if_unused(self, lane: LaneId, entry: _Lane) -> None:
        if not entry.holders and entry.followed is None:
            del self._lanes[lane]
