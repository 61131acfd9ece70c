"""Sessions straight at the scripted upstream over loopback: what they see is what was planned."""

from collections.abc import Sequence

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.recall.calls import Item
from harness.recall.faults import End
from harness.recall.line import LineClosed, LineMessage, StreamEvent
from harness.recall.plan import ScriptedExchange
from harness.recall.script import events
from harness.recall.session import ClientSession
from harness.recall.watch import Notes
from tests.harness.recall.kit import small_plan


class DeafLine:
    """A proxy that never answers, or that has something to say when nothing runs."""

    ends_itself = False

    def __init__(self, *messages: LineMessage, leftovers: Sequence[LineMessage] = ()) -> None:
        self._messages = list(messages)
        self._leftovers = leftovers
        self.dropped = 0

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(self) -> LineMessage:
        if not self._messages:
            await trio.sleep_forever()
        return self._messages.pop(0)

    async def interrupt(self) -> bool:
        return True

    async def leftovers(self) -> Sequence[LineMessage]:
        return self._leftovers

    async def drop(self) -> None:
        self.dropped += 1


async def test_an_answer_that_never_comes_is_given_up(autojump_clock: MockClock) -> None:
    plan, notes, line = small_plan(sessions=1), Notes(), DeafLine()
    done = await ClientSession(plan.waves[0], line, notes).run()

    assert not done
    assert [seen.end for seen in notes.seen] == [End.TIMED_OUT]
    assert line.dropped == 1


async def test_what_comes_although_nothing_runs_is_noted() -> None:
    plan, notes = small_plan(sessions=1), Notes()
    session = plan.waves[0]
    said = [
        StreamEvent(fields, b"")
        for planned in plan.exchanges()
        if planned.session is session
        for fields in events(plan, session, planned.exchange)
    ]
    line = DeafLine(*said, leftovers=[LineClosed(clean=False)])
    done = await ClientSession(session, line, notes).run()

    assert done
    assert notes.problems == ["wave-0: LineClosed(clean=False) though nothing runs"]


async def test_a_client_that_is_cancelled_hangs_up_all_the_same() -> None:
    line = DeafLine()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ClientSession(small_plan(sessions=1).waves[0], line, Notes()).run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert line.dropped == 1
