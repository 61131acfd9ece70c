"""Workers that wait in the line of their root: who is called, in which order, and who is not."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints, wait_all_tasks_blocked

from lifecycle import (
    Admission,
    AdmissionReason,
    AdmissionRefused,
    Limits,
    WorkflowLimits,
)
from tests.lifecycle.asks import ask, child, root, top
from tests.lifecycle.holder import Holder, Holders, is_quiet

HOLD_SECONDS = 60
SETTLE_SECONDS = Limits().settle_seconds
ENDINGS = pytest.mark.parametrize("ending", [Holder.finish, Holder.fail, Holder.cancel])


def holding(**numbers: int) -> Admission:
    return Admission(Limits(workflow=WorkflowLimits(hold_seconds=HOLD_SECONDS, **numbers)))


@pytest.fixture
def admission() -> Admission:
    return holding()


@pytest.fixture
def narrow() -> Admission:
    """One worker at once, one turn for the conversation."""
    return holding(turns=2)


async def fan_out(start: Holders, admission: Admission, number: int) -> list[Holder]:
    return [await start(admission, child(n, 0, in_lane=n)) for n in range(number)]


async def end(holder: Holder) -> None:
    holder.finish()
    await holder.wait_over()
    await wait_all_tasks_blocked()


def waiting(admission: Admission) -> int:
    return admission.statistics().lines.waiting


def running(holders: list[Holder]) -> list[int]:
    return [number for number, holder in enumerate(holders) if holder.is_holding]


# Being served.


async def test_twelve_workers_are_all_served_in_the_order_in_which_they_came(
    admission: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    workers = await fan_out(start, admission, 12)
    assert (running(workers), waiting(admission)) == ([*range(7)], 5)
    seen = []
    for number in range(12):
        await end(workers[number])
        seen.append(running(workers))

    assert seen == [[*range(n + 1, min(n + 8, 12))] for n in range(12)]
    assert admission.statistics().turns.refused == 0
    assert admission.workflows.each(0)[root(0)].refused == 0


async def test_a_worker_that_comes_in_the_step_that_frees_a_turn_does_not_overtake(
    narrow: Admission, nursery: trio.Nursery, start: Holders
) -> None:
    async with narrow.lease(child(0, 0)):
        first = await start(narrow, child(1, 0))
    late = Holder(narrow, child(2, 0))
    nursery.start_soon(late.run)
    await wait_all_tasks_blocked()

    assert (first.is_holding, late.is_holding, waiting(narrow)) == (True, False, 1)


async def test_a_root_with_a_turn_left_grants_it_although_others_were_just_called(
    start: Holders,
) -> None:
    admission = holding(turns=3)
    async with admission.lease(child(0, 0)), admission.lease(child(1, 0)):
        called = await start(admission, child(2, 0))
    late = await start(admission, child(3, 0))

    assert (called.is_holding, late.is_holding, waiting(admission)) == (True, True, 0)


async def test_the_conversation_is_served_at_once_while_workers_wait(
    admission: Admission, start: Holders
) -> None:
    await fan_out(start, admission, 12)
    parent = await start(admission, top(0))
    guardian = await start(admission, child(99, 0, worker=False, counted=False))

    assert (parent.is_holding, waiting(admission)) == (True, 5)
    assert guardian.refusal is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED


async def test_each_root_has_a_line_of_its_own(narrow: Admission, start: Holders) -> None:
    _one, other = [await start(narrow, child(n, n)) for n in (1, 2)]
    after = [await start(narrow, child(n + 10, n)) for n in (1, 2)]
    await end(other)

    assert (running(after), waiting(narrow)) == ([1], 1)


@ENDINGS
async def test_a_lease_that_was_waited_for_in_line_comes_back_whichever_way_its_block_ends(
    ending: Callable[[Holder], None], narrow: Admission, start: Holders
) -> None:
    first, second, third = await fan_out(start, narrow, 3)
    await end(first)
    assert running([second, third]) == [0]
    ending(second)
    await second.wait_over()
    await wait_all_tasks_blocked()

    assert (third.is_holding, waiting(narrow)) == (True, 0)


# Leaving the line.


async def test_a_worker_that_has_waited_its_time_is_refused(
    narrow: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    first, second = await fan_out(start, narrow, 2)
    await trio.sleep(10)
    third = await start(narrow, child(3, 0))
    await second.wait_over()

    assert second.refusal is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED
    assert second.refused_at == pytest.approx(HOLD_SECONDS)
    assert (first.is_holding, waiting(narrow)) == (True, 1)
    assert narrow.statistics().turns.refused == 1
    await end(first)
    assert third.admitted_at == pytest.approx(HOLD_SECONDS)


async def test_a_turn_that_comes_free_when_the_time_is_over_is_not_lost(
    narrow: Admission, nursery: trio.Nursery, start: Holders, autojump_clock: MockClock
) -> None:
    async def leave_then() -> None:
        async with narrow.lease(child(0, 0)):
            await trio.sleep(HOLD_SECONDS)

    for _ in range(50):  # which of the two comes first is left to chance
        nursery.start_soon(leave_then)
        await wait_all_tasks_blocked()
        later = await start(narrow, child(1, 0))
        await trio.sleep(HOLD_SECONDS)
        await wait_all_tasks_blocked()
        assert later.is_holding or later.refusal is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED
        await end(later)

        assert is_quiet(narrow)


async def test_a_worker_that_hangs_up_in_line_vanishes(narrow: Admission, start: Holders) -> None:
    first, second, third = await fan_out(start, narrow, 3)
    second.cancel()
    await second.wait_over()
    assert waiting(narrow) == 1
    await end(first)

    assert (second.lease, third.is_holding) == (None, True)
    third.cancel()
    await third.wait_over()


@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_a_worker_called_and_cancelled_in_one_step_leaves_the_turn_to_the_next(
    cancelled_first: bool, narrow: Admission, start: Holders
) -> None:
    async with narrow.lease(child(0, 0)):
        second, third = [await start(narrow, child(n, 0)) for n in (1, 2)]
        if cancelled_first:
            second.cancel()
    second.cancel()
    await second.wait_over()
    await wait_all_tasks_blocked()

    assert (second.is_holding, third.is_holding, waiting(narrow)) == (False, True, 0)


async def test_a_worker_cancelled_and_called_to_a_lane_that_is_held_leaves_nothing(
    start: Holders,
) -> None:
    admission = holding(turns=3)
    async with admission.lease(child(0, 0)), admission.lease(child(1, 0)):
        twins = [await start(admission, child(2, 0, in_lane=2)) for _ in range(2)]
        twins[1].cancel()
    await twins[1].wait_over()
    await wait_all_tasks_blocked()

    assert (running(twins), admission.workflows.each(0)[root(0)].active) == ([0], 1)
    await end(twins[0])
    assert is_quiet(admission)


async def test_a_drain_empties_the_line(narrow: Admission, start: Holders) -> None:
    workers = await fan_out(start, narrow, 4)
    narrow.close_door(10)
    await wait_all_tasks_blocked()
    late = await start(narrow, child(9, 0))

    assert [worker.refusal for worker in workers] == [None, *[AdmissionReason.DRAINING] * 3]
    assert (running(workers), late.refusal, waiting(narrow)) == ([0], AdmissionReason.DRAINING, 0)
    await end(workers[0])
    await narrow.wait_idle()


# Who does not wait.


async def test_a_full_line_refuses_at_once(
    narrow: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    workers = await fan_out(start, narrow, 18)

    assert (waiting(narrow), workers[17].refused_at) == (16, 0)
    assert workers[17].refusal is AdmissionReason.WORKFLOW_CONCURRENCY_EXHAUSTED


@pytest.mark.parametrize(
    "limits", [WorkflowLimits(turns=2), WorkflowLimits(turns=2, hold_seconds=60, line=0)]
)
async def test_no_worker_waits_where_that_is_not_switched_on(limits: WorkflowLimits) -> None:
    admission = Admission(Limits(workflow=limits))
    async with admission.lease(child(0, 0)):
        with (
            assert_no_checkpoints(),
            pytest.raises(AdmissionRefused, match="workflow_concurrency_exhausted"),
        ):
            await admission.lease(child(1, 0)).__aenter__()


async def test_a_worker_without_a_root_does_not_wait() -> None:
    admission = Admission(Limits(turns=1, workflow=WorkflowLimits(hold_seconds=60)))
    async with admission.lease(ask(worker=True)):
        with pytest.raises(AdmissionRefused, match="turns_at_capacity"):
            await admission.lease(ask(worker=True)).__aenter__()


async def test_a_worker_refused_for_more_than_its_root_s_turns_is_refused_at_once(
    start: Holders,
) -> None:
    workflow = WorkflowLimits(turns=2, children=1, hold_seconds=60)
    admission = Admission(Limits(turns=3, lanes=2, lanes_kept=1, workflow=workflow))
    await start(admission, child(0, 0, in_lane=0))
    await start(admission, child(0, 0, in_lane=0))
    wishes = [child(1, 0), child(0, 0, in_lane=1), child(0, 0, in_lane=0)]
    refusals = [(await start(admission, wish)).refusal for wish in wishes]

    assert refusals == [
        AdmissionReason.WORKFLOW_CHILDREN_EXHAUSTED,
        AdmissionReason.LANES_AT_CAPACITY,
        AdmissionReason.LANE_BUSY,
    ]


async def test_a_worker_that_returns_to_its_own_lane_inherits_it_past_the_line(
    narrow: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    first, second = await fan_out(start, narrow, 2)
    again = await start(narrow, child(0, 0, in_lane=0))
    assert waiting(narrow) == 1
    await end(first)

    assert (again.is_holding, second.is_holding) == (True, False)
    await end(again)
    assert second.is_holding


# What is decided when one is called.


async def test_a_called_worker_that_finds_its_lane_held_settles(
    start: Holders, autojump_clock: MockClock
) -> None:
    admission = holding(turns=3)
    async with admission.lease(child(0, 0)), admission.lease(child(1, 0)):
        twins = [await start(admission, child(2, 0, in_lane=2)) for _ in range(2)]
    await wait_all_tasks_blocked()
    assert (running(twins), waiting(admission)) == ([0], 0)
    await twins[1].wait_over()

    assert twins[1].refusal is AdmissionReason.LANE_BUSY
    assert twins[1].refused_at == pytest.approx(SETTLE_SECONDS)


async def test_a_called_worker_that_finds_the_process_full_is_refused(
    start: Holders,
) -> None:
    workflow = WorkflowLimits(turns=2, hold_seconds=60)
    admission = Admission(Limits(turns=2, workflow=workflow))
    first, second, third = await fan_out(start, admission, 3)
    await start(admission, ask())
    waiting_for_it = admission.succeed(first.held.id, ask())
    await end(first)

    assert [x.refusal for x in (second, third)] == [AdmissionReason.TURNS_AT_CAPACITY] * 2
    admission.abandon(waiting_for_it)


async def test_a_process_that_is_full_for_a_moment_keeps_the_line_of_a_full_root(
    start: Holders,
) -> None:
    workflow = WorkflowLimits(turns=2, hold_seconds=60)
    admission = Admission(Limits(turns=3, workflow=workflow))
    _first, second = await fan_out(start, admission, 2)
    strangers = [await start(admission, ask()) for _ in range(2)]
    heir = admission.succeed(strangers[0].held.id, ask())
    await end(strangers[0])

    assert (second.refusal, waiting(admission)) == (None, 1)
    admission.abandon(heir)


# Whatever frees a turn serves the line.


@pytest.mark.parametrize("gives_way", [False, True])
async def test_a_reservation_that_is_given_up_leaves_its_turn_to_the_line(
    gives_way: bool, narrow: Admission, start: Holders
) -> None:
    holder = await start(narrow, top(5))
    reservation = narrow.succeed(holder.held.id, child(2, 0))
    first = await start(narrow, child(1, 0))
    assert waiting(narrow) == 1
    if gives_way:
        reservation = narrow.succeed(holder.held.id, top(5), instead_of=reservation)
    else:
        narrow.abandon(reservation)
    await wait_all_tasks_blocked()

    assert first.is_holding
    if gives_way:
        narrow.abandon(reservation)


async def test_a_turn_that_settles_in_vain_leaves_its_place_to_the_line(
    narrow: Admission, start: Holders, autojump_clock: MockClock
) -> None:
    await start(narrow, top(5, in_lane=9))
    settling = await start(narrow, child(2, 0, in_lane=9))
    first = await start(narrow, child(1, 0))
    assert waiting(narrow) == 1
    await settling.wait_over()
    await wait_all_tasks_blocked()

    assert (settling.refusal, first.is_holding) == (AdmissionReason.LANE_BUSY, True)
    assert first.admitted_at == pytest.approx(SETTLE_SECONDS)


async def test_a_turn_that_is_cancelled_while_it_settles_leaves_its_place_to_the_line(
    narrow: Admission, start: Holders
) -> None:
    await start(narrow, top(5, in_lane=9))
    settling = await start(narrow, child(2, 0, in_lane=9))
    first = await start(narrow, child(1, 0))
    settling.cancel()
    await settling.wait_over()
    await wait_all_tasks_blocked()

    assert first.is_holding
