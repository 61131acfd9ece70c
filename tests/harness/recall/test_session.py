"""Sessions straight at the scripted upstream over loopback: what they see is what was planned."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.recall.calls import Item
from harness.recall.evidence import CheckVerdict
from harness.recall.faults import End
from harness.recall.http_line import HttpLine
from harness.recall.judge import judge
from harness.recall.line import Address, LineClosed, Message, StreamEvent
from harness.recall.plan import Plan, ScriptedExchange
from harness.recall.script import events
from harness.recall.session import ClientSession
from harness.recall.stage import Stage
from harness.recall.upstream import PlanScript, open_plan
from harness.recall.watch import Notes
from tests.harness.recall.kit import small_plan, sound


@asynccontextmanager
async def no_proxy(plan: Plan) -> AsyncIterator[tuple[PlanScript, Address, Stage]]:
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(10):
        async with open_plan(plan, stage) as (upstream, port):
            yield upstream, Address(host="127.0.0.1", port=port), stage


async def take(plan: Plan) -> tuple[Notes, PlanScript]:
    """All sessions of a plan, and the waves let go as they fill."""
    notes = Notes()
    async with no_proxy(plan) as (upstream, address, stage), trio.open_nursery() as nursery:
        for session in (*plan.waves, *plan.faulty):
            line = HttpLine(address, session)
            nursery.start_soon(ClientSession(session, line, notes).run)
        for wave in range(len(plan.waves[0].turns)):
            await stage.wait_full(wave)
            stage.open(wave)
    return notes, upstream


async def failed_checks(plan: Plan) -> set[str]:
    notes, upstream = await take(plan)
    evidence = sound(
        plan,
        seen=tuple(notes.seen),
        client_problems=tuple(notes.problems),
        upstream_problems=tuple(upstream.memory.problems),
        sends=dict(upstream.memory.sends),
        cuts=dict(upstream.memory.cuts),
    )
    return {check.says for check in judge(evidence) if check.verdict is CheckVerdict.FAIL}


@pytest.mark.parametrize("seed", range(3))
async def test_sessions_get_back_exactly_their_own(seed: int) -> None:
    plan = small_plan(seed=seed, sessions=4, rounds=3)

    assert await failed_checks(plan) <= {"every request ended as planned"}


async def test_a_swapped_call_is_lost_by_one_and_foreign_to_the_other() -> None:
    assert await failed_checks(small_plan(swap=True)) >= {
        "no call lost, doubled or foreign",
        "nothing crossed, nothing out of order",
        "the upstream saw the whole input",
    }


class DeafLine:
    """A proxy that never answers, or that has something to say when nothing runs."""

    ends_itself = False

    def __init__(self, *messages: Message, leftovers: Sequence[Message] = ()) -> None:
        self._messages = list(messages)
        self._leftovers = leftovers
        self.dropped = 0

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(self) -> Message:
        if not self._messages:
            await trio.sleep_forever()
        return self._messages.pop(0)

    async def interrupt(self) -> bool:
        return True

    async def leftovers(self) -> Sequence[Message]:
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
