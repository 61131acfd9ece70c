"""The nursery that owns a lease: nothing of a turn outlives it, and it outlives nothing."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Admission, AdmissionReason, AdmissionRefused, Limits, Overlap, Turn, open_turn
from tests.lifecycle.asks import ask
from tests.lifecycle.holder import BrokenTurnError


@pytest.fixture
def admission() -> Admission:
    return Admission(Limits())


def active(admission: Admission) -> int:
    return admission.statistics().turns.active


class Helper:
    """A task of a turn; when it is cancelled it takes its time, and looks around at the end."""

    def __init__(self, admission: Admission, *, lingers: float = 0) -> None:
        self._admission = admission
        self._lingers = lingers
        self.active_at_its_end: int | None = None

    async def run(self) -> None:
        try:
            await trio.sleep(1000)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._lingers)
            self.active_at_its_end = active(self._admission)


async def fail() -> None:
    await trio.lowlevel.checkpoint()
    raise BrokenTurnError


async def test_helpers_end_with_the_block_and_the_lease_is_back_after_them(
    admission: Admission, autojump_clock: MockClock
) -> None:
    helpers = [Helper(admission), Helper(admission)]
    async with open_turn(admission, ask(1)) as turn:
        for helper in helpers:
            turn.nursery.start_soon(helper.run)
        await wait_all_tasks_blocked()
        assert (turn.lease.ask, active(admission)) == (ask(1), 1)

    assert [helper.active_at_its_end for helper in helpers] == [1, 1]
    assert (trio.current_time(), active(admission)) == (0, 0)


async def test_a_helper_that_shields_its_cleanup_keeps_the_lease_for_so_long(
    admission: Admission, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    helper = Helper(admission, lingers=0.5)
    back = trio.Event()

    async def run_turn() -> None:
        async with open_turn(admission, ask(1)) as turn:
            turn.nursery.start_soon(helper.run)
            await trio.sleep(1)
        back.set()

    nursery.start_soon(run_turn)
    await trio.sleep(1.4)
    assert (active(admission), back.is_set()) == (1, False)
    await back.wait()

    assert trio.current_time() == pytest.approx(1.5)
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_a_successor_begins_when_the_last_helper_of_the_earlier_turn_has_ended(
    admission: Admission, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    began: list[float] = []
    helper = Helper(admission, lingers=2)
    async with open_turn(admission, ask(1)) as earlier:
        earlier.nursery.start_soon(helper.run)
        waiting = admission.succeed(earlier.lease.id, ask(1))

        async def succeed() -> None:
            async with open_turn(admission, waiting):
                began.append(trio.current_time())

        nursery.start_soon(succeed)
        await wait_all_tasks_blocked()
        earlier.nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()

    assert began == pytest.approx([2])
    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_what_the_block_raises_passes_through_and_leaves_nothing(
    admission: Admission,
) -> None:
    helper = Helper(admission)
    with pytest.RaisesGroup(BrokenTurnError):
        async with open_turn(admission, ask(1)) as turn:
            turn.nursery.start_soon(helper.run)
            await wait_all_tasks_blocked()
            raise BrokenTurnError

    assert (helper.active_at_its_end, active(admission)) == (1, 0)


async def test_what_a_helper_raises_ends_the_turn(admission: Admission) -> None:
    with pytest.RaisesGroup(BrokenTurnError):
        async with open_turn(admission, ask(1)) as turn:
            turn.nursery.start_soon(fail)
            await trio.sleep_forever()

    assert active(admission) == 0


async def test_a_cancelled_turn_gives_its_lease_back(admission: Admission) -> None:
    with trio.CancelScope() as scope:
        async with open_turn(admission, ask(1)):
            scope.cancel()
            await trio.sleep_forever()

    assert (scope.cancelled_caught, active(admission)) == (True, 0)


async def test_a_displaced_turn_ends_quietly_and_can_say_so(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    admission = Admission(Limits(overlap=Overlap.REPLACE))
    helper = Helper(admission)
    turns: list[Turn] = []

    async def run_turn(seconds: float) -> None:
        async with open_turn(admission, ask(1)) as turn:
            turns.append(turn)
            turn.nursery.start_soon(helper.run)
            await trio.sleep(seconds)

    nursery.start_soon(run_turn, 60)
    await wait_all_tasks_blocked()
    nursery.start_soon(run_turn, 1)
    await trio.sleep(1.5)

    assert [turn.lease.displaced for turn in turns] == [True, False]
    assert (helper.active_at_its_end, active(admission)) == (1, 1)
    await trio.sleep(1)
    assert active(admission) == 0


async def test_a_refused_turn_has_no_block(admission: Admission) -> None:
    async with open_turn(admission, ask(1)) as turn:
        admission.close_door(1)
        with pytest.raises(AdmissionRefused, match="draining") as caught:
            await open_turn(admission, ask(2)).__aenter__()

    assert caught.value.reason is AdmissionReason.DRAINING
    assert (turn.lease.displaced, active(admission)) == (False, 0)
