"""The nursery that owns a lease: nothing of a turn outlives it, and it outlives nothing."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import (
    Admission,
    AdmissionReason,
    AdmissionRefused,
    Cause,
    Lease,
    Limits,
    Overlap,
    TurnScope,
)
from tests.lifecycle.asks import ask
from tests.lifecycle.holder import BrokenTurnError


@pytest.fixture
def admission() -> Admission:
    return Admission(Limits())


def active(admission: Admission) -> int:
    return admission.statistics().turns.active


class Helper:
    """A task of a turn; when it is cancelled it takes its time, and looks around at the end."""

    def __init__(self, admission: Admission, *, lingers: float = 0, works: float = 1000) -> None:
        self._admission = admission
        self._lingers = lingers
        self._works = works
        self.active_at_its_end: int | None = None

    async def run(self) -> None:
        try:
            await trio.sleep(self._works)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._lingers)
            self.active_at_its_end = active(self._admission)


async def fail() -> None:
    await trio.lowlevel.checkpoint()
    raise BrokenTurnError


async def test_the_lease_is_back_when_the_last_task_of_the_turn_has_ended(
    admission: Admission, autojump_clock: MockClock
) -> None:
    helpers = [Helper(admission, works=1), Helper(admission, works=2)]
    async with admission.lease(ask(1)) as lease:
        for helper in helpers:
            lease.nursery.start_soon(helper.run)
        assert (lease.ask, active(admission)) == (ask(1), 1)

    assert [helper.active_at_its_end for helper in helpers] == [1, 1]
    assert (trio.current_time(), active(admission)) == (2, 0)


async def test_a_task_that_shields_its_cleanup_keeps_the_lease_for_so_long(
    admission: Admission, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    helper = Helper(admission, lingers=0.5)
    scope = TurnScope()
    back = trio.Event()

    async def run_turn() -> None:
        with scope:
            async with admission.lease(ask(1), scope) as lease:
                lease.nursery.start_soon(helper.run)
        back.set()

    nursery.start_soon(run_turn)
    await trio.sleep(1)
    scope.cancel(Cause.INTERRUPTED)
    await trio.sleep(0.4)
    assert (active(admission), back.is_set()) == (1, False)
    await back.wait()

    assert trio.current_time() == pytest.approx(1.5)
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_a_successor_begins_when_the_last_task_of_the_earlier_turn_has_ended(
    admission: Admission, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    began: list[float] = []
    helper = Helper(admission, lingers=2)
    async with admission.lease(ask(1)) as earlier:
        earlier.nursery.start_soon(helper.run)
        waiting = admission.succeed(earlier.id, ask(1))

        async def succeed() -> None:
            async with admission.lease(waiting):
                began.append(trio.current_time())

        nursery.start_soon(succeed)
        await wait_all_tasks_blocked()
        earlier.nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()

    assert began == pytest.approx([2])
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_what_the_block_raises_ends_the_tasks_and_leaves_nothing(
    admission: Admission,
) -> None:
    helper = Helper(admission)
    with pytest.RaisesGroup(BrokenTurnError):
        async with admission.lease(ask(1)) as lease:
            lease.nursery.start_soon(helper.run)
            await wait_all_tasks_blocked()
            raise BrokenTurnError

    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_what_a_task_raises_ends_the_turn(admission: Admission) -> None:
    helper = Helper(admission)
    with pytest.RaisesGroup(BrokenTurnError):
        async with admission.lease(ask(1)) as lease:
            lease.nursery.start_soon(helper.run)
            lease.nursery.start_soon(fail)

    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_a_turn_cancelled_from_outside_gives_its_lease_back(admission: Admission) -> None:
    helper = Helper(admission)
    with trio.CancelScope() as outside, TurnScope() as scope:
        async with admission.lease(ask(1), scope) as lease:
            lease.nursery.start_soon(helper.run)
            await wait_all_tasks_blocked()
            outside.cancel()

    assert (outside.cancelled_caught, scope.cause) == (True, None)
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_the_first_cause_counts(admission: Admission, autojump_clock: MockClock) -> None:
    helper = Helper(admission)
    with TurnScope() as scope:
        async with admission.lease(ask(1), scope) as lease:
            lease.nursery.start_soon(helper.run)
            await wait_all_tasks_blocked()
            lease.scope.cancel(Cause.INTERRUPTED)
            lease.scope.cancel(Cause.CLIENT_GONE)

    assert scope.cause is Cause.INTERRUPTED
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_a_turn_cancelled_before_it_is_entered_waits_for_nothing(
    admission: Admission, autojump_clock: MockClock
) -> None:
    scope = TurnScope()
    scope.cancel(Cause.REPLACED)
    async with admission.lease(ask(1)):
        with scope:
            async with admission.lease(ask(1), scope):
                pass

    assert (trio.current_time(), scope.cause) == (0, Cause.REPLACED)
    assert admission.statistics().turns.peak == 1


async def test_a_displaced_turn_ends_quietly_and_can_say_so(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=Overlap.REPLACE))
    helpers = [Helper(admission), Helper(admission, works=1)]
    leases: list[Lease] = []

    async def run_turn(helper: Helper) -> None:
        with TurnScope() as scope:
            async with admission.lease(ask(1), scope) as lease:
                leases.append(lease)
                lease.nursery.start_soon(helper.run)

    nursery.start_soon(run_turn, helpers[0])
    await wait_all_tasks_blocked()
    nursery.start_soon(run_turn, helpers[1])
    await trio.sleep(1.5)

    assert [lease.scope.cause for lease in leases] == [Cause.DISPLACED, None]
    assert (helpers[0].active_at_its_end, admission.held) == (1, (leases[1],))
    await trio.sleep(1)
    assert active(admission) == 0


async def test_a_refused_turn_has_no_block(admission: Admission) -> None:
    async with admission.lease(ask(1)) as lease:
        admission.close_door(1)
        with pytest.raises(AdmissionRefused, match="draining") as caught:
            await admission.lease(ask(2)).__aenter__()

    assert caught.value.reason is AdmissionReason.DRAINING
    assert (lease.scope.cause, active(admission)) == (None, 0)


async def test_a_lease_and_its_ledger_show_what_is_held(autojump_clock: MockClock) -> None:
    admission = Admission(Limits(memory_bytes=10))
    await trio.sleep(1)
    async with admission.lease(ask(1, body_bytes=4)) as lease:
        await trio.sleep(3.2)
        admission.succeed(lease.id, ask(2))
        seen = (repr(lease), repr(admission))

    assert seen == (
        f"<Lease turn-1 lane={str(ask(1).lane)[:4]}\u2026 held 3.2 s>",
        "<Admission open, 0 sockets, <Ledger 1 turns, 1 waiting, <Lanes 1 held, 0 set aside>, "
        "<MemoryGate 4 of 10 bytes>>>",
    )


def test_a_lease_can_be_shown_after_its_run() -> None:
    async def hold() -> Lease:
        async with Admission(Limits()).lease(ask(1)) as lease:
            return lease

    lease = trio.run(hold)

    assert repr(lease).endswith("held no longer>")
