"""The ledger against a model that shares no rule with it: it tries every future there is.

The model knows what is held and who waits for what. Whether one more ask fits, it decides by going
through all the subsets of waiting asks that may be granted before the next one asks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lifecycle import (
    LANE_ID_BYTES,
    AdmissionReason,
    Ask,
    Granted,
    LaneId,
    LeaseId,
    Ledger,
    Limits,
    Refusal,
    Reservation,
    Waiting,
    WorkflowLimits,
)
from tests.lifecycle.asks import ask as an_ask
from tests.lifecycle.asks import lane as a_lane

WORKFLOW = WorkflowLimits(
    turns=3,
    kept=1,
    children=2,
    sends=3,
    sends_kept=2,
    window_seconds=12,
    slots=3,
    roots=2,
    threads=3,
)
LIMITS = Limits(turns=4, lanes=3, lanes_kept=1, memory_bytes=10, workflow=WORKFLOW)
NUMBERS = range(5)
SIZES = st.sampled_from([0, 0, 1, 2, 5])
ASKS = st.builds(an_ask, st.sampled_from([*NUMBERS, None]), worker=st.booleans(), body_bytes=SIZES)
LANE_REFUSALS = {AdmissionReason.LANE_BUSY, AdmissionReason.LANES_AT_CAPACITY}


@dataclass(frozen=True)
class Follower:
    """A waiting ask; `moves_in` when no lane closes for the one that it opens."""

    ask: Ask
    extra_bytes: int
    moves_in: bool


@dataclass(frozen=True)
class World:
    """What is held, and who waits behind which lease."""

    leases: dict[LeaseId, Ask] = field(default_factory=dict)
    followers: dict[LeaseId, Follower] = field(default_factory=dict)
    sizes: dict[LeaseId, int] = field(default_factory=dict)
    opened_by_worker: dict[LaneId, bool] = field(default_factory=dict)

    def used_lanes(self) -> set[LaneId]:
        asks = chain(self.leases.values(), (x.ask for x in self.followers.values()))
        return {ask.lane for ask in asks if ask.lane is not None}

    def holders(self, lane: LaneId | None) -> list[LeaseId]:
        return [x for x, ask in self.leases.items() if lane is not None and ask.lane == lane]

    def is_followed(self, lane: LaneId | None) -> bool:
        return lane is not None and lane in {x.ask.lane for x in self.followers.values()}

    def holding(self, lease_id: LeaseId, ask: Ask) -> "World":
        leases, sizes = self.leases | {lease_id: ask}, self.sizes | {lease_id: ask.body_bytes}
        return replace(self, leases=leases, sizes=sizes)._opening(ask)

    def waiting(self, earlier: LeaseId, ask: Ask) -> "World":
        held = self.leases[earlier]
        moves_in = (
            ask.lane is not None and ask.lane != held.lane and self.holders(held.lane) != [earlier]
        )
        extra = max(0, ask.body_bytes - self.sizes[earlier])
        follower = Follower(ask, extra, moves_in)
        return replace(self, followers=self.followers | {earlier: follower})._opening(ask)

    def without_follower(self, earlier: LeaseId) -> "World":
        followers = {x: y for x, y in self.followers.items() if x != earlier}
        return replace(self, followers=followers)._closing()

    def without(self, lease_id: LeaseId) -> "World":
        leases = {x: y for x, y in self.leases.items() if x != lease_id}
        sizes = {x: y for x, y in self.sizes.items() if x != lease_id}
        return replace(self, leases=leases, sizes=sizes)._closing()

    def passed(self, lease_id: LeaseId, heir_id: LeaseId) -> "World":
        """The world in which the follower of `lease_id` holds `heir_id` instead of it."""
        heir = self.followers[lease_id].ask
        return self.holding(heir_id, heir).without_follower(lease_id).without(lease_id)

    def futures(self) -> Iterator[set[LaneId]]:
        """The lanes held or set aside, for each set of followers that may be granted."""
        every = range(len(self.followers) + 1)
        for granted in chain.from_iterable(combinations(self.followers, n) for n in every):
            now = (ask.lane for x, ask in self.leases.items() if x not in granted)
            then = (x.ask.lane for at, x in self.followers.items() if at in granted or x.moves_in)
            yield {lane for lane in chain(now, then) if lane is not None}

    def lanes_fit(self) -> bool:
        return all(
            len(lanes) <= LIMITS.lanes
            and len([x for x in lanes if self.opened_by_worker[x]])
            <= LIMITS.lanes - LIMITS.lanes_kept
            for lanes in self.futures()
        )

    def turns_fit(self) -> bool:
        return len(self.leases) <= LIMITS.turns

    def held_bytes(self) -> int:
        return sum(self.sizes.values()) + sum(x.extra_bytes for x in self.followers.values())

    def memory_fits(self) -> bool:
        return self.held_bytes() <= LIMITS.memory_bytes

    def _opening(self, ask: Ask) -> "World":
        if ask.lane is None or ask.lane in self.opened_by_worker:
            return self
        return replace(self, opened_by_worker=self.opened_by_worker | {ask.lane: ask.worker})

    def _closing(self) -> "World":
        used = self.used_lanes()
        opened_by_worker = {x: y for x, y in self.opened_by_worker.items() if x in used}
        return replace(self, opened_by_worker=opened_by_worker)


SOMEBODY = LeaseId(-1)
"""Stands for a lease that an ask may get, while the model makes up its mind."""


Workflow = Callable[[Ask, LeaseId | None], AdmissionReason | None]
"""What the root of an ask says to it, if it is to follow that lease or to come by itself."""


def refusal_of(world: World, workflow: AdmissionReason | None) -> AdmissionReason | None:
    if not world.lanes_fit():
        return AdmissionReason.LANES_AT_CAPACITY
    if not world.turns_fit():
        return AdmissionReason.TURNS_AT_CAPACITY
    if workflow is not None:
        return workflow
    return None if world.memory_fits() else AdmissionReason.MEMORY_AT_CAPACITY


def judge_ask(
    world: World, ask: Ask, workflow: Workflow
) -> tuple[AdmissionReason | None, LeaseId | None]:
    """The refusal that is due, or none and the lease to wait for, if there is one."""
    if ask.lane not in world.used_lanes():
        return refusal_of(world.holding(SOMEBODY, ask), workflow(ask, None)), None
    free = [x for x in world.holders(ask.lane) if x not in world.followers]
    if not free or world.is_followed(ask.lane):
        return AdmissionReason.LANE_BUSY, None
    return refusal_of(world.waiting(min(free), ask), workflow(ask, min(free))), min(free)


def judge_succession(
    world: World, earlier: LeaseId, ask: Ask, workflow: Workflow
) -> AdmissionReason | None:
    """Return the refusal that is due if `ask` is to follow `earlier`, instead of its follower."""
    world = world.without_follower(earlier)
    same_lane = ask.lane == world.leases[earlier].lane
    if world.is_followed(ask.lane) if same_lane else ask.lane in world.used_lanes():
        return AdmissionReason.LANE_BUSY
    return refusal_of(world.waiting(earlier, ask), workflow(ask, earlier))


@dataclass(eq=False)
class Transcript:
    """Memory that its owner can do without."""

    reservation: Reservation | None = None
    size: int = 0
    evicted: bool = False

    def evict(self) -> None:
        assert self.reservation is not None
        self.reservation.give_back()
        self.evicted = True


class TurnsMachine(RuleBasedStateMachine):
    """Turns come, follow each other and go."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.events: list[tuple[str, LeaseId]] = []
        self.ledger = Ledger(LIMITS, lambda what, lease_id: self.events.append((what, lease_id)))
        self.world = World()
        self.waiting: dict[LeaseId, Waiting] = {}  # by the lease that each follows
        self.heirs: dict[LeaseId, Waiting] = {}  # by the lease that each was granted
        self.transcripts: list[Transcript] = []  # the one that was touched last comes last
        self.turns = {"peak": 0, "admitted": 0, "refused": 0}
        self.lanes = {"peak": 0, "admitted": 0, "refused": 0}

    @rule(ask=ASKS)
    def ask(self, ask: Ask) -> None:
        refusal, earlier = judge_ask(self.world, ask, self.workflow_refusal)
        decision = self.ledger.ask(ask, self.now)

        if self.ledger.draining:
            self.refused(decision, AdmissionReason.DRAINING)
        elif refusal is not None:
            self.refused(decision, refusal)
        elif earlier is not None:
            self.waits(decision, earlier, ask)
        else:
            self.granted(decision, ask)

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data(), ask=ASKS, gives_way=st.booleans())
    def succeed(self, data: st.DataObject, ask: Ask, gives_way: bool) -> None:
        """Replace the follower of `earlier`, or `earlier` itself if granted and not begun."""
        earlier = self.draw(data, self.world.leases)
        replaced, heir = self.waiting.get(earlier), self.heirs.get(earlier)
        refusal = judge_succession(self.world, earlier, ask, self.workflow_refusal)
        if replaced is not None and not gives_way:
            refusal = AdmissionReason.LANE_BUSY
        if gives_way and replaced is None and heir is not None:
            decision = self.ledger.succeed(heir.earlier, ask, self.now, heir)
        else:
            decision = self.ledger.succeed(earlier, ask, self.now, replaced if gives_way else None)

        if self.ledger.draining:
            self.refused(decision, AdmissionReason.DRAINING)
        elif refusal is not None:
            self.refused(decision, refusal)
        else:
            assert replaced is None or replaced.superseded
            self.unfollowed(earlier)
            self.waits(decision, earlier, ask)

    @precondition(lambda self: self.settling())
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        earlier = self.draw(data, self.settling())
        waiting = self.waiting.pop(earlier)
        self.unfollowed(earlier)
        world = self.world.holding(SOMEBODY, waiting.ask)
        refusal = refusal_of(world, self.workflow_refusal(waiting.ask, None))
        decision = self.ledger.share(waiting, self.now)

        if refusal is not None:
            self.refused(decision, refusal)
        else:
            self.granted(decision, waiting.ask)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        earlier = self.draw(data, self.waiting)
        self.ledger.abandon(self.waiting.pop(earlier))
        self.unfollowed(earlier)

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.end(self.draw(data, self.world.leases))

    @invariant()
    def the_books_are_those_of_the_model(self) -> None:
        active = {ask.lane for ask in self.world.leases.values() if ask.lane is not None}
        self.turns["peak"] = max(self.turns["peak"], len(self.world.leases))
        self.lanes["peak"] = max(self.lanes["peak"], len(active))
        books = self.ledger.statistics()

        assert self.ledger.active == books.turns.active == len(self.world.leases)
        assert (books.lanes.active, books.lanes.limit) == (len(active), LIMITS.lanes)
        assert books.lanes.retained_bytes == len(active) * LANE_ID_BYTES
        assert books.lanes.peak_retained_bytes == self.lanes["peak"] * LANE_ID_BYTES
        assert {name: getattr(books.turns, name) for name in self.turns} == self.turns
        assert {name: getattr(books.lanes, name) for name in self.lanes} == self.lanes
        kept = sum(x.size for x in self.transcripts)
        assert books.memory.held_bytes == self.world.held_bytes() + kept
        for number in NUMBERS:
            lane = a_lane(number)
            assert self.ledger.holders(lane) == frozenset(self.world.holders(lane))

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        books = self.ledger.statistics()
        lanes = [x for x in map(a_lane, NUMBERS) if self.ledger.holders(x)]
        workers = [x for x in lanes if self.world.opened_by_worker[x]]

        assert books.turns.peak <= books.turns.limit
        assert books.lanes.peak <= books.lanes.limit
        assert len(workers) <= LIMITS.lanes - LIMITS.lanes_kept
        assert books.memory.held_bytes <= books.memory.limit_bytes

    @invariant()
    def nobody_is_followed_by_two(self) -> None:
        lanes = [x.ask.lane for x in self.waiting.values() if x.ask.lane is not None]

        assert len(lanes) == len(set(lanes))
        assert all(x.earlier == at and x.lease_id is None for at, x in self.waiting.items())
        assert all(x.evicted is False for x in self.transcripts)

    def teardown(self) -> None:
        while self.world.leases:
            self.end(min(self.world.leases))
        for transcript in self.transcripts:
            transcript.evict()
        books = self.ledger.statistics()

        assert (books.lanes.active, books.lanes.retained_bytes, books.turns.active) == (0, 0, 0)
        assert books.memory.held_bytes == 0
        self.ledger.draining = False
        assert self.ledger.memory.reserve(LIMITS.memory_bytes) is not None
        answers = [self.ledger.ask(an_ask(n, worker=n < 2), self.now) for n in range(LIMITS.lanes)]
        assert all(isinstance(answer, Granted) for answer in answers)

    # What the rules share.

    def draw(self, data: st.DataObject, among: Iterable[LeaseId]) -> LeaseId:
        return data.draw(st.sampled_from(sorted(among)))

    def settling(self) -> dict[LeaseId, Waiting]:
        """Those who wait in the lane of the lease that they follow, as other connections do."""
        leases = self.world.leases
        return {
            at: x
            for at, x in self.waiting.items()
            if x.ask.lane is not None and x.ask.lane == leases[at].lane
        }

    def end(self, lease_id: LeaseId) -> None:
        self.events.clear()
        heir = self.ledger.give_back(lease_id)

        assert heir is self.waiting.pop(lease_id, None)
        self.heirs.pop(lease_id, None)
        if heir is None:
            assert self.events == [("released", lease_id)]
            self.becomes(self.world.without(lease_id))
        else:
            assert heir.lease_id is not None
            assert self.events == [("released", lease_id), ("admitted", heir.lease_id)]
            self.heirs[heir.lease_id] = heir
            self.count_admitted(heir.ask)
            self.becomes(self.world.passed(lease_id, heir.lease_id))

    def refused(self, decision: object, refusal: AdmissionReason) -> None:
        assert decision == Refusal(refusal, self.retry_seconds(refusal))
        self.turns["refused"] += 1
        self.lanes["refused"] += refusal in LANE_REFUSALS

    def granted(self, decision: object, ask: Ask) -> None:
        assert isinstance(decision, Granted)
        self.count_admitted(ask)
        self.becomes(self.world.holding(decision.lease_id, ask))

    def waits(self, decision: object, earlier: LeaseId, ask: Ask) -> None:
        assert isinstance(decision, Waiting)
        assert (decision.earlier, decision.ask) == (earlier, ask)
        self.waiting[earlier] = decision
        self.becomes(self.world.waiting(earlier, ask))

    def unfollowed(self, earlier: LeaseId) -> None:
        self.world = self.world.without_follower(earlier)

    def workflow_refusal(self, _ask: Ask, _earlier: LeaseId | None) -> AdmissionReason | None:
        """Without roots there is none; `test_workflow_machine.py` has some."""
        return None

    def retry_seconds(self, _refusal: AdmissionReason) -> float | None:
        return None

    def count_admitted(self, ask: Ask) -> None:
        self.turns["admitted"] += 1
        self.lanes["admitted"] += ask.lane is not None

    def becomes(self, world: World) -> None:
        """The step has been taken; the oldest transcripts gave way to it, as far as needed."""
        self.world = world
        while world.held_bytes() + sum(x.size for x in self.transcripts) > LIMITS.memory_bytes:
            assert self.transcripts.pop(0).evicted


class LedgerMachine(TurnsMachine):
    """Their bodies grow, others hold memory too, and the door may be closed."""

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data(), extra=SIZES)
    def grow(self, data: st.DataObject, extra: int) -> None:
        lease_id = self.draw(data, self.world.leases)
        sizes = self.world.sizes | {lease_id: self.world.sizes[lease_id] + extra}
        grown = replace(self.world, sizes=sizes)

        assert self.ledger.grow(lease_id, extra) == grown.memory_fits()
        if grown.memory_fits():
            self.becomes(grown)

    @rule(size=SIZES)
    def keep_a_transcript(self, size: int) -> None:
        transcript = Transcript()
        transcript.reservation = self.ledger.memory.reserve(size, transcript.evict)
        fits = self.world.held_bytes() + size <= LIMITS.memory_bytes

        assert (transcript.reservation is not None) == fits
        if fits:
            transcript.size = size
            self.transcripts.append(transcript)
            self.becomes(self.world)

    @precondition(lambda self: self.transcripts)
    @rule(data=st.data(), size=SIZES)
    def resize_a_transcript(self, data: st.DataObject, size: int) -> None:
        transcript = data.draw(st.sampled_from(self.transcripts))
        fits = size <= transcript.size or self.world.held_bytes() + size <= LIMITS.memory_bytes
        assert transcript.reservation is not None

        assert transcript.reservation.resize(size) == fits
        if fits:
            transcript.size = size
            self.transcripts.remove(transcript)
            self.transcripts.append(transcript)
            self.becomes(self.world)

    @precondition(lambda self: self.transcripts)
    @rule(data=st.data())
    def drop_a_transcript(self, data: st.DataObject) -> None:
        transcript = data.draw(st.sampled_from(self.transcripts))
        self.transcripts.remove(transcript)
        transcript.evict()

    @rule(draining=st.sampled_from([False, False, True]))
    def drain(self, draining: bool) -> None:
        self.ledger.draining = draining


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=50)


@pytest.mark.load  # a quarter of a minute
def test_the_same_at_length() -> None:
    run_state_machine_as_test(
        LedgerMachine, settings=settings(max_examples=400, stateful_step_count=50)
    )
