"""Whole runs in process: a sound proxy passes, and each defect is found out."""

import pytest
import trio

from harness.evidence import Evidence
from harness.faults import Transport
from harness.judge import judge
from harness.notes import Notes
from harness.plan import Plan
from harness.probe import Probe, Unreadable
from harness.proxy import Target
from harness.run import Run, take_through
from harness.stage import Stage
from harness.upstream import open_upstream
from harness.verdict import Check, Verdict
from tests.harness.books import Books
from tests.harness.kit import small_plan
from tests.harness.stand_in import open_stand_in


async def run(plan: Plan, books: Books) -> Evidence | Unreadable:
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(20):
        async with (
            open_upstream(plan, stage) as (upstream, port),
            open_stand_in(port, books) as address,
        ):
            return await take_through(
                Run(
                    plan=plan,
                    target=Target(address=address),
                    stage=stage,
                    memory=upstream.memory,
                    notes=Notes(),
                    probe=Probe(address),
                )
            )


async def checks(plan: Plan, books: Books) -> dict[str, Check]:
    evidence = await run(plan, books)
    assert isinstance(evidence, Evidence)
    return {check.says: check for check in judge(evidence)}


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("seed", range(2))
async def test_a_sound_proxy_passes(seed: int, transport: Transport) -> None:
    plan = small_plan(seed=seed, transport=transport, sessions=6, rounds=2)
    judged = await checks(plan, Books())

    assert [check for check in judged.values() if check.verdict is not Verdict.PASS] == []
