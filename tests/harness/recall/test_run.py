"""Whole runs in process: a sound proxy passes, and each defect is found out."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from harness.recall.evidence import Check, CheckVerdict, RunEvidence
from harness.recall.faults import Transport
from harness.recall.judge import judge
from harness.recall.line import Address
from harness.recall.plan import Plan
from harness.recall.probe import Probe, Status, Unreadable
from harness.recall.proxy import Target
from harness.recall.run import PHASES, Phase, Run, fan_out, take_through
from harness.recall.stage import Stage
from harness.recall.upstream import open_plan
from harness.recall.watch import Notes
from tests.harness.recall.books import PARENT, Books
from tests.harness.recall.kit import small_plan
from tests.harness.recall.stand_in import open_stand_in


def impatient(address: Address) -> Probe:
    return Probe(address, settle_seconds=0.2)


async def run(
    plan: Plan,
    books: Books,
    probe: Callable[[Address], Probe] = impatient,
    phases: tuple[Phase, ...] = PHASES,
    **changed: Any,
) -> RunEvidence | Unreadable:
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(20):
        async with (
            open_plan(plan, stage) as (upstream, port),
            open_stand_in(port, books) as address,
        ):
            return await take_through(
                Run(
                    plan=plan,
                    target=Target(address=address),
                    stage=stage,
                    memory=upstream.memory,
                    notes=Notes(),
                    probe=probe(address),
                    **changed,
                ),
                phases,
            )


async def checks(plan: Plan, books: Books, **changed: Any) -> dict[str, Check]:
    evidence = await run(plan, books, **changed)
    assert isinstance(evidence, RunEvidence)
    return {check.says: check for check in judge(evidence)}


@pytest.mark.parametrize("transport", Transport)
async def test_a_sound_proxy_passes(transport: Transport) -> None:
    plan = small_plan(transport=transport, sessions=5, rounds=2)
    judged = await checks(plan, Books())

    assert [check for check in judged.values() if check.verdict is not CheckVerdict.PASS] == []


FAILS = CheckVerdict.FAIL


async def failed(plan: Plan, books: Books, **changed: Any) -> set[str]:
    judged = await checks(plan, books, **changed)
    return {check.says for check in judged.values() if check.verdict is FAILS}


@pytest.mark.parametrize("transport", Transport)
async def test_lanes_too_many_are_refused_over_both_transports(transport: Transport) -> None:
    plan = small_plan(transport=transport, sessions=4, rounds=2, beyond=2)

    assert await failed(plan, Books(limit=4)) == set()


async def test_a_lane_too_many_that_is_served() -> None:
    plan = small_plan(sessions=4, beyond=2)

    assert await failed(plan, Books(limit=64)) == {
        "lane 5 is refused, and nothing kept for it",
        "refused turns never reach the upstream",
        "as many refusals as planned",
        "peak is exactly 4 lanes, 128 bytes",
    }


async def test_a_lane_that_is_not_given_back() -> None:
    assert await failed(small_plan(sessions=3), Books(leaks=True)) == {
        "peak is exactly 3 lanes, 96 bytes",
        "everything is zero afterwards",
    }


async def test_a_proxy_that_has_no_lane_for_everybody() -> None:
    judged = await failed(small_plan(sessions=3), Books(limit=2))

    assert judged >= {"every session took every turn", "every request ended as planned"}


async def test_a_proxy_that_has_no_lane_at_all() -> None:
    judged = await failed(small_plan(sessions=2), Books(limit=0))

    assert "peak is exactly 2 lanes, 64 bytes" in judged


async def test_a_wave_that_does_not_fill_is_let_go() -> None:
    judged = await failed(small_plan(sessions=2), Books(), wave_seconds=0)

    assert judged == {"peak is exactly 2 lanes, 64 bytes"}


async def test_a_target_that_accounts_for_nothing() -> None:
    plan = small_plan(sessions=2)
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(20):
        async with open_plan(plan, stage) as (upstream, port):
            nothing = Address(host="127.0.0.1", port=port)
            evidence = await take_through(
                Run(
                    plan=plan,
                    target=Target(address=nothing),
                    stage=stage,
                    memory=upstream.memory,
                    notes=Notes(),
                    probe=Probe(nothing),
                )
            )

    assert evidence == Unreadable("/status answers 404")


class Vanishing(Probe):
    """A /status that can be read once."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, settle_seconds=0)
        self._left = 1

    async def read(self) -> Status | Unreadable:
        self._left -= 1
        return await super().read() if self._left >= 0 else Unreadable("gone")


async def test_a_proxy_that_stops_accounting_for_itself() -> None:
    plan = small_plan(sessions=4, beyond=2)

    assert await run(plan, Books(limit=4), probe=Vanishing) == Unreadable("gone")


@pytest.mark.parametrize("transport", Transport)
async def test_a_fan_out_within_its_budget(transport: Transport) -> None:
    plan = small_plan(transport=transport, fan_out=True)
    judged = await checks(plan, Books())

    assert {OWN_TURN, CHILDREN, BEGUN, ENDED, ONE_BUDGET, REFUSALS} <= judged.keys()
    assert [check for check in judged.values() if check.verdict is not CheckVerdict.PASS] == []


OWN_TURN = "the conversation's own turn is admitted at once"
CHILDREN = "of 12 children at once 7 run, 5 are refused"
BEGUN = "a stream that has begun frees nothing"
ENDED = "a stream that has ended lets one in"
ONE_BUDGET = "a whole fan-out pays from one budget"
REFUSALS = "as many refusals as planned"


async def failed_alone(plan: Plan, books: Books, **changed: Any) -> set[str]:
    """What fails in a fan-out without any other phase, but for what the others are judged by."""
    judged = await failed(plan, books, phases=(fan_out,), **changed)
    return judged - {"every session took every turn", "peak is exactly 2 lanes, 64 bytes"}


async def test_a_fan_out_that_nobody_bounds() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(turns=64, workers=64))

    assert judged == {OWN_TURN, CHILDREN, BEGUN, ENDED, REFUSALS}


@pytest.mark.parametrize("transport", Transport)
async def test_a_conversation_that_is_starved_by_its_children(transport: Transport) -> None:
    plan = small_plan(transport=transport, fan_out=True)
    judged = await failed_alone(plan, Books(turns=7))

    assert judged == {
        OWN_TURN,
        BEGUN,
        ENDED,
        REFUSALS,
        "its every turn is served in the end",
    }


async def test_turns_that_are_given_back_with_their_first_event() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(headers_free=True))

    assert judged >= {CHILDREN, BEGUN}


async def test_a_grandchild_that_has_a_budget_of_its_own() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(roots_by=PARENT))

    assert judged == {BEGUN, ENDED, ONE_BUDGET, REFUSALS}


async def test_a_fan_out_whose_lanes_run_out_is_let_go() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(limit=3))

    assert judged >= {CHILDREN, "its refusals are such as Codex waits out"}


async def test_a_fan_out_that_comes_to_nothing() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(limit=0))

    assert judged >= {OWN_TURN, CHILDREN, "its every turn is served in the end"}


async def test_a_fan_out_that_does_not_settle_in_time() -> None:
    judged = await failed_alone(small_plan(fan_out=True), Books(), wave_seconds=0)

    assert judged >= {OWN_TURN, CHILDREN, BEGUN, ENDED}
