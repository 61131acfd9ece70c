"""Leases as blocks: every way in, every way out, and what the other connections notice."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import (
    Admission,
    AdmissionReason,
    AdmissionRefused,
    LeaseId,
    Ledger,
    Limits,
    Overlap,
    Waiting,
    WorkflowLimits,
)
from tests.lifecycle.asks import ask, child, root
from tests.lifecycle.holder import Holder, Holders

NOTHING = (0, 0, 0)
SETTLE_SECONDS = Limits().settle_seconds
GONE_SECONDS = Limits().client_gone_seconds


@pytest.fixture
def admission() -> Admission:
    return Admission(Limits())


def held(admission: Admission) -> tuple[int, int, int]:
    """Lanes, turns and bytes."""
    now = admission.statistics()
    return now.lanes.active, now.turns.active, now.memory.held_bytes


# Every way to a lease, and every way in which that ends.


@dataclass(frozen=True)
class Way:
    """How an ask comes to a lease in a lane that `earlier` holds."""

    opens: Callable[[Holder], None]
    overlap: Overlap = Overlap.REFUSE
    own: bool = False  # the same connection replaces its own turn


def settling_time_passes(_earlier: Holder) -> None:
    """Nothing else has to happen."""


SETTLES = Way(Holder.finish)
DISPLACES = Way(settling_time_passes, Overlap.REPLACE)
SHARES = Way(settling_time_passes, Overlap.SHARE)
SUCCEEDS = Way(Holder.cancel, own=True)
WAYS = pytest.mark.parametrize("way", [SETTLES, DISPLACES, SHARES, SUCCEEDS])
ENDINGS = pytest.mark.parametrize("ending", [Holder.finish, Holder.fail, Holder.cancel])


async def two_in_one_lane(start: Holders, way: Way) -> tuple[Admission, Holder, Holder]:
    """The earlier one holds 5 bytes; the later one waits, and wants 7."""
    admission = Admission(Limits(overlap=way.overlap))
    earlier = await start(admission, ask(1, body_bytes=5))
    wanted = ask(1, body_bytes=7)
    entry = admission.succeed(earlier.held.id, wanted) if way.own else wanted
    later = await start(admission, entry)
    assert held(admission) == (1, 1, 7)
    return admission, earlier, later


@ENDINGS
async def test_a_lease_comes_back_whichever_way_its_block_ends(
    ending: Callable[[Holder], None], admission: Admission, start: Holders
) -> None:
    holder = await start(admission, ask(1, body_bytes=7))
    assert held(admission) == (1, 1, 7)
    ending(holder)
    await holder.wait_over()

    assert held(admission) == NOTHING


@WAYS
@ENDINGS
async def test_a_lease_that_was_waited_for_comes_back_whichever_way_its_block_ends(
    way: Way,
    ending: Callable[[Holder], None],
    start: Holders,
    autojump_clock: MockClock,
) -> None:
    admission, earlier, later = await two_in_one_lane(start, way)
    way.opens(earlier)
    await trio.sleep(SETTLE_SECONDS)
    await wait_all_tasks_blocked()
    assert later.is_holding
    assert earlier.is_holding == (way is SHARES)
    assert earlier.is_displaced == (way is DISPLACES)
    at_once = later.admitted_at == 0
    assert at_once == (way in (SETTLES, SUCCEEDS))
    ending(later)
    await later.wait_over()

    assert held(admission) == ((1, 1, 5) if way is SHARES else NOTHING)


@WAYS
async def test_a_turn_cancelled_while_waiting_leaves_the_place_to_the_next(
    way: Way, start: Holders, autojump_clock: MockClock
) -> None:
    admission, earlier, later = await two_in_one_lane(start, way)
    later.cancel()
    await later.wait_over()

    assert (later.lease, held(admission)) == (None, (1, 1, 5))
    third = await start(admission, ask(1))
    earlier.finish()
    await wait_all_tasks_blocked()
    assert third.is_holding


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_a_turn_cancelled_and_granted_in_one_step_leaves_nothing(
    own: bool, cancelled_first: bool, start: Holders
) -> None:
    def observe(what: str, _: LeaseId) -> None:
        if what == "released" and cancelled_first:
            later.cancel()

    admission = Admission(Limits(), Ledger(Limits(), observe))
    async with admission.lease(ask(1, body_bytes=5)) as earlier:
        wanted = ask(1, body_bytes=7)
        entry = admission.succeed(earlier.id, wanted) if own else wanted
        later = await start(admission, entry)
    assert held(admission) == (1, 1, 7)
    later.cancel()
    await later.wait_over()

    assert held(admission) == NOTHING
    assert (later.lease is None) == cancelled_first


async def test_a_displaced_turn_that_cleans_up_keeps_its_lease_until_it_has(
    start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=Overlap.REPLACE))
    earlier = await start(admission, ask(1), lingers=3)
    later = await start(admission, ask(1))
    await trio.sleep(SETTLE_SECONDS + 2.9)

    assert (earlier.is_displaced, earlier.is_holding, later.is_holding) == (True, True, False)
    await earlier.wait_over()
    await wait_all_tasks_blocked()
    assert later.admitted_at == pytest.approx(SETTLE_SECONDS + 3)


async def test_a_turn_cancelled_after_it_displaced_another_leaves_nothing(
    start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=Overlap.REPLACE))
    earlier = await start(admission, ask(1), lingers=3)
    later = await start(admission, ask(1, body_bytes=7))
    await trio.sleep(SETTLE_SECONDS + 1)
    later.cancel()
    await later.wait_over()

    assert held(admission) == (1, 1, 0)
    await earlier.wait_over()
    assert (held(admission), later.lease) == (NOTHING, None)


# Another connection asks for a lane that is held.


async def test_a_lane_that_is_left_while_it_settles_passes_on_at_once(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    earlier = await start(admission, ask(1))
    later = await start(admission, ask(1))
    await trio.sleep(0.9)
    earlier.finish()
    await wait_all_tasks_blocked()

    assert (later.is_holding, later.is_displaced) == (True, False)
    assert later.admitted_at == pytest.approx(0.9)


async def test_a_lane_still_held_after_the_settling_time_is_busy(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    earlier = await start(admission, ask(1))
    later = await start(admission, ask(1))
    await later.wait_over()

    assert later.refusal is AdmissionReason.LANE_BUSY
    assert later.refused_at == pytest.approx(SETTLE_SECONDS)
    assert (earlier.is_holding, earlier.is_displaced) == (True, False)
    assert admission.statistics().lanes.refused == 1
    assert held(admission) == (1, 1, 0)


@pytest.mark.parametrize("overlap", list(Overlap))
async def test_a_second_successor_is_refused_at_once(
    overlap: Overlap, start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=overlap))
    earlier = await start(admission, ask(1))
    later = await start(admission, ask(1))
    third = await start(admission, ask(1))

    assert (third.refusal, third.refused_at) == (AdmissionReason.LANE_BUSY, 0)
    earlier.finish()
    await wait_all_tasks_blocked()
    assert later.is_holding


@pytest.mark.parametrize("overlap", list(Overlap))
async def test_a_holder_whose_client_has_stalled_long_enough_counts_as_gone(
    overlap: Overlap, start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=overlap))
    earlier = await start(admission, ask(1))
    earlier.held.client_stalled_seconds = lambda: GONE_SECONDS
    later = await start(admission, ask(1))
    await earlier.wait_over()
    await wait_all_tasks_blocked()

    assert (earlier.is_displaced, later.is_holding) == (True, True)
    assert later.admitted_at == pytest.approx(SETTLE_SECONDS)


async def test_a_holder_whose_client_has_stalled_for_less_keeps_its_lane(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    earlier = await start(admission, ask(1))
    earlier.held.client_stalled_seconds = lambda: GONE_SECONDS - 0.1
    later = await start(admission, ask(1))
    await later.wait_over()

    assert (earlier.is_holding, later.refusal) == (True, AdmissionReason.LANE_BUSY)


@pytest.mark.parametrize(
    ("overlap", "turns"), [(Overlap.REFUSE, 1), (Overlap.REPLACE, 1), (Overlap.SHARE, 2)]
)
async def test_a_holder_that_has_not_entered_yet_is_not_displaced(
    overlap: Overlap, turns: int, start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=overlap))
    earlier = await start(admission, ask(1))
    granted = admission.succeed(earlier.held.id, ask(1))
    earlier.finish()
    await earlier.wait_over()
    later = await start(admission, ask(1))
    await trio.sleep(SETTLE_SECONDS + 0.1)

    assert held(admission) == (1, turns, 0)
    assert later.refusal is (None if overlap is Overlap.SHARE else AdmissionReason.LANE_BUSY)
    admission.abandon(granted)


async def test_without_a_settling_time_a_held_lane_is_busy_at_once(
    start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(settle_seconds=0))
    await start(admission, ask(1))
    later = await start(admission, ask(1))

    assert (later.refusal, later.refused_at) == (AdmissionReason.LANE_BUSY, 0)


async def test_a_lane_left_in_the_last_moment_of_the_settling_time_is_not_lost(
    nursery: trio.Nursery, start: Holders, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits())

    async def leave_then() -> None:
        async with admission.lease(ask(1)):
            await trio.sleep(SETTLE_SECONDS)

    for _ in range(50):  # which of the two comes first is left to chance
        nursery.start_soon(leave_then)
        await wait_all_tasks_blocked()
        later = await start(admission, ask(1))
        await trio.sleep(SETTLE_SECONDS)
        await wait_all_tasks_blocked()
        assert later.is_holding or later.refusal is AdmissionReason.LANE_BUSY
        later.finish()
        await later.wait_over()

        assert held(admission) == NOTHING


async def test_a_refusal_is_raised_before_the_block_and_holds_nothing() -> None:
    admission = Admission(Limits(turns=1))
    async with admission.lease(ask(1, body_bytes=5)):
        with pytest.raises(AdmissionRefused, match="turns_at_capacity") as caught:
            await admission.lease(ask(2, body_bytes=7)).__aenter__()

        assert caught.value.reason is AdmissionReason.TURNS_AT_CAPACITY
        assert held(admission) == (1, 1, 5)
        assert admission.statistics().turns.refused == 1


# A root's budget.


async def test_a_send_is_charged_to_the_root_at_the_time_at_which_it_happens(
    autojump_clock: MockClock,
) -> None:
    admission = Admission(Limits(workflow=WorkflowLimits(sends=2)))
    async with admission.lease(child(1, parent=0)) as lease:
        assert [lease.sent(), lease.sent(), lease.sent()] == [True, True, False]
        await trio.sleep(599)
        assert not lease.sent()
        await trio.sleep(1)
        assert lease.sent()

    assert admission.workflows.each(trio.current_time())[root(0)].worker_sends == 1
    assert admission.statistics().workflows.active == 0


async def test_a_refusal_says_when_the_window_will_have_rolled(autojump_clock: MockClock) -> None:
    admission = Admission(Limits(workflow=WorkflowLimits(sends=1)))
    async with admission.lease(child(1, parent=0)) as lease:
        lease.sent()
        await trio.sleep(10)
        with pytest.raises(AdmissionRefused, match="workflow_sends_exhausted") as asked:
            await admission.lease(child(2, parent=0)).__aenter__()
        with pytest.raises(AdmissionRefused, match="workflow_sends_exhausted") as succeeding:
            admission.succeed(lease.id, child(1, parent=0))

    assert asked.value.retry_seconds == pytest.approx(590)
    assert succeeding.value.retry_seconds == pytest.approx(590)


# A connection replaces its own turn.


async def test_the_earlier_turn_is_released_before_its_successor_is_admitted(
    start: Holders, autojump_clock: MockClock
) -> None:
    seen: list[tuple[str, LeaseId]] = []
    ledger = Ledger(Limits(), lambda what, lease_id: seen.append((what, lease_id)))
    admission = Admission(Limits(), ledger)
    earlier = await start(admission, ask(1), lingers=5)
    waiting = admission.succeed(earlier.held.id, ask(1))
    earlier.cancel()
    later = await start(admission, waiting)
    await trio.sleep(4.9)

    assert seen == [("admitted", earlier.held.id)]
    await earlier.wait_over()
    await wait_all_tasks_blocked()
    assert later.admitted_at == pytest.approx(5)  # its wait is not bounded by the settling time
    assert seen[1:] == [("released", earlier.held.id), ("admitted", later.held.id)]
    assert admission.statistics().turns.peak == 1


async def test_a_successor_may_enter_after_it_was_granted(admission: Admission) -> None:
    async with admission.lease(ask(1)) as earlier:
        waiting = admission.succeed(earlier.id, ask(1, body_bytes=7))
    assert held(admission) == (1, 1, 7)
    async with admission.lease(waiting) as later:
        assert (later.id, later.ask) == (waiting.lease_id, waiting.ask)

    assert held(admission) == NOTHING


@pytest.mark.parametrize("granted", [False, True])
async def test_a_reservation_that_is_abandoned_frees_its_place(
    granted: bool, admission: Admission
) -> None:
    async with admission.lease(ask(1)) as earlier:
        waiting = admission.succeed(earlier.id, ask(1, body_bytes=7))
        if not granted:
            admission.abandon(waiting)
    if granted:
        admission.abandon(waiting)

    assert held(admission) == NOTHING
    async with admission.lease(ask(1)):
        assert held(admission) == (1, 1, 0)


async def test_a_third_turn_takes_the_place_of_the_one_that_waits(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    earlier = await start(admission, ask(1), lingers=0.1)
    waiting = admission.succeed(earlier.held.id, ask(1, body_bytes=9))
    earlier.cancel()
    second = await start(admission, waiting)
    third_waits = admission.succeed(earlier.held.id, ask(1, body_bytes=7), instead_of=waiting)
    second.cancel()
    third = await start(admission, third_waits)
    assert (second.over.is_set(), held(admission)) == (True, (1, 1, 7))
    await earlier.wait_over()
    await wait_all_tasks_blocked()

    assert (second.lease, third.is_holding) == (None, True)


async def test_a_third_turn_follows_the_second_that_was_granted_but_has_not_begun(
    admission: Admission, start: Holders
) -> None:
    async with admission.lease(ask(1)) as earlier:
        second_waits = admission.succeed(earlier.id, ask(1))
        second = await start(admission, second_waits)
    third_waits = admission.succeed(earlier.id, ask(1), instead_of=second_waits)
    second.cancel()
    third = await start(admission, third_waits)

    assert (second.over.is_set(), third.is_holding) == (True, True)
    assert third_waits.earlier == second_waits.lease_id


# Memory, WebSockets, and the door.


async def test_a_lease_holds_what_its_body_grows_by_and_gives_back_all_of_it() -> None:
    admission = Admission(Limits(memory_bytes=10))
    async with admission.lease(ask(1, body_bytes=5)) as lease:
        assert lease.grow(5)
        assert not lease.grow(1)
        assert held(admission) == (1, 1, 10)

    assert held(admission) == NOTHING


def test_256_websockets_have_a_place_and_the_257th_is_refused(admission: Admission) -> None:
    with ExitStack() as places:
        for _ in range(256):
            places.enter_context(admission.websocket())
        with pytest.raises(AdmissionRefused, match="websockets_at_capacity"):
            places.enter_context(admission.websocket())

        assert admission.statistics().websockets.active == 256
        assert admission.statistics().websockets.limit == 256
    assert admission.statistics().websockets.active == 0


def test_a_websocket_gives_its_place_back_when_it_breaks(admission: Admission) -> None:
    with pytest.raises(ZeroDivisionError), admission.websocket():
        raise ZeroDivisionError

    assert admission.statistics().websockets.active == 0


async def test_a_closed_door_refuses_every_ask_and_lets_what_is_held_run_on(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    earlier = await start(admission, ask(1))
    waiting = await start(admission, ask(1))
    assert (admission.draining, admission.door_closed.is_set()) == (False, False)
    admission.close_door(10)

    assert (admission.draining, admission.door_closed.is_set()) == (True, True)
    for wish in (ask(1), ask(2), ask()):
        with pytest.raises(AdmissionRefused, match="draining"):
            await admission.lease(wish).__aenter__()
    with pytest.raises(AdmissionRefused, match="draining"):
        admission.succeed(earlier.held.id, ask(1))
    with pytest.raises(AdmissionRefused, match="draining"):
        admission.websocket().__enter__()
    earlier.finish()
    await wait_all_tasks_blocked()
    assert waiting.is_holding  # it had been promised the lane


async def test_the_seconds_left_of_a_drain_count_down_to_zero(
    admission: Admission, autojump_clock: MockClock
) -> None:
    await trio.sleep(3)
    before = admission.drain_seconds_left
    admission.close_door(10)
    left = [admission.drain_seconds_left]
    for seconds in (4, 5.5, 2):
        await trio.sleep(seconds)
        left.append(admission.drain_seconds_left)

    assert before == 0
    assert left == pytest.approx([10, 6, 0.5, 0])


async def test_a_drain_is_over_when_its_time_has_run_out_and_not_before_it_began(
    admission: Admission, autojump_clock: MockClock
) -> None:
    over = [admission.drain_is_over]
    admission.close_door(10)
    for seconds in (0, 9.5, 0.5, 1):
        await trio.sleep(seconds)
        over.append(admission.drain_is_over)

    assert over == [False, False, False, True, True]


async def test_the_service_is_away_until_a_drain_is_over_unless_the_next_process_is_there(
    admission: Admission, autojump_clock: MockClock
) -> None:
    admission.close_door(10)
    await trio.sleep(4)
    alone = admission.away_seconds
    admission.close_door(admission.drain_seconds_left, succeeded=True)
    followed = admission.away_seconds
    admission.close_door(0)

    assert (alone, followed, admission.away_seconds) == (8, 0, 0)


async def test_what_a_drain_refuses_is_told_when_to_come_back(
    admission: Admission, autojump_clock: MockClock
) -> None:
    admission.close_door(10)
    await trio.sleep(4)
    told = []
    for succeeded in (False, True):
        admission.close_door(admission.drain_seconds_left, succeeded=succeeded)
        with pytest.raises(AdmissionRefused) as turn:
            async with admission.lease(ask(1)):
                pytest.fail("it was admitted")
        with pytest.raises(AdmissionRefused) as socket, admission.websocket():
            pytest.fail("it was admitted")
        told.append((turn.value.retry_seconds, socket.value.retry_seconds))

    assert told == [(8, 8), (0, 0)]


@pytest.mark.parametrize("websocket_first", [False, True])
async def test_idle_is_when_the_last_lease_and_the_last_websocket_are_gone(
    websocket_first: bool, admission: Admission, nursery: trio.Nursery, start: Holders
) -> None:
    idle = [trio.Event(), trio.Event()]

    async def tell_when_idle(event: trio.Event) -> None:
        await admission.wait_idle()
        event.set()

    place = ExitStack()
    place.enter_context(admission.websocket())
    earlier = await start(admission, ask(1))
    later = await start(admission, ask(1))
    for event in idle:
        nursery.start_soon(tell_when_idle, event)
    seen = []
    ends = [earlier.finish, later.finish]
    ends.insert(0 if websocket_first else 2, place.close)
    for end in ends:
        await wait_all_tasks_blocked()
        seen.append([event.is_set() for event in idle])
        end()
    await wait_all_tasks_blocked()

    assert seen == [[False, False]] * 3
    assert all(event.is_set() for event in idle)


async def test_a_reservation_not_yet_entered_keeps_the_process_from_being_idle(
    admission: Admission, nursery: trio.Nursery
) -> None:
    async with admission.lease(ask(1)) as earlier:
        granted: Waiting = admission.succeed(earlier.id, ask(1))
    with trio.move_on_after(0) as idle:
        await admission.wait_idle()
    admission.abandon(granted)

    assert idle.cancelled_caught
    assert held(admission) == NOTHING
