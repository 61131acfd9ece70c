"""Sessions straight at the scripted upstream over loopback: what they see is what was planned."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from harness.http_line import HttpLine
from harness.judge import judge
from harness.line import Address
from harness.notes import Notes
from harness.plan import Plan
from harness.session import Session
from harness.stage import Stage
from harness.upstream import Upstream, open_upstream
from harness.verdict import Verdict
from tests.harness.kit import small_plan, sound


@asynccontextmanager
async def no_proxy(plan: Plan) -> AsyncIterator[tuple[Upstream, Address, Stage]]:
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(10):
        async with open_upstream(plan, stage) as (upstream, port):
            yield upstream, Address(host="127.0.0.1", port=port), stage


async def take(plan: Plan) -> tuple[Notes, Upstream]:
    """All sessions of a plan, and the waves let go as they fill."""
    notes = Notes()
    async with no_proxy(plan) as (upstream, address, stage), trio.open_nursery() as nursery:
        for session in (*plan.waves, *plan.faulty):
            line = HttpLine(address, session)
            nursery.start_soon(Session(session, line, notes).run)
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
    return {check.says for check in judge(evidence) if check.verdict is Verdict.FAIL}


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
