"""Whole runs in process: the proxy passes, and settings that make it unsound are found out."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import trio

from harness.recall.evidence import CheckVerdict, RunEvidence
from harness.recall.faults import RecallTransport
from harness.recall.judge import judge
from harness.recall.line import Address
from harness.recall.plan import Plan
from harness.recall.probe import Probe, Status, Unreadable
from harness.recall.proxy import Target
from harness.recall.run import PHASES, Phase, Run, fan_out, take_through
from harness.recall.stage import Stage
from harness.recall.upstream import open_plan
from harness.recall.watch import Notes
from harness.wire.client import HOST
from harness.wire.upstream import open_upstream
from tests.e2e.proxy import Sections, open_proxy
from tests.harness.recall.kit import small_plan

NOTHING: Sections = MappingProxyType({})


def impatient(address: Address) -> Probe:
    return Probe(address, settle_seconds=0.2)


async def run(
    plan: Plan,
    sections: Sections = NOTHING,
    probe: Callable[[Address], Probe] = impatient,
    phases: tuple[Phase, ...] = PHASES,
    **changed: Any,
) -> RunEvidence | Unreadable:
    """Take a proxy with these settings through a run."""
    stage = Stage(session.thread_id for session in plan.waves)
    with trio.fail_after(20):
        async with (
            open_plan(plan, stage) as (script, port),
            open_proxy(f"http://{HOST}:{port}/v1", **sections) as proxy,
        ):
            address = Address(host=HOST, port=proxy.port)
            return await take_through(
                Run(
                    plan=plan,
                    target=Target(address=address),
                    stage=stage,
                    memory=script.memory,
                    notes=Notes(),
                    probe=probe(address),
                    **changed,
                ),
                phases,
            )


async def failed(plan: Plan, sections: Sections = NOTHING, **changed: Any) -> set[str]:
    evidence = await run(plan, sections, **changed)
    assert isinstance(evidence, RunEvidence)
    return {check.says for check in judge(evidence) if check.verdict is not CheckVerdict.PASS}


@pytest.mark.parametrize("transport", RecallTransport)
async def test_a_sound_proxy_passes(transport: RecallTransport) -> None:
    plan = small_plan(transport=transport, sessions=5, rounds=2, fan_out=True)

    assert await failed(plan) == set()


@pytest.mark.parametrize("transport", RecallTransport)
async def test_a_lane_beyond_the_limit_is_refused_over_both_transports(
    transport: RecallTransport,
) -> None:
    plan = small_plan(transport=transport, sessions=4, rounds=2, beyond=2)

    assert await failed(plan, {"lanes": {"limit": 4, "kept": 0}}) == set()


async def test_a_lane_beyond_the_limit_that_is_served_is_found_out() -> None:
    assert await failed(small_plan(sessions=4, beyond=2)) == {
        "lane 5 is refused, and nothing kept for it",
        "refused turns never reach the upstream",
        "as many refusals as planned",
        "peak is exactly 4 lanes, 128 bytes",
    }


async def test_a_proxy_that_has_no_lane_for_every_session_is_found_out() -> None:
    found = await failed(small_plan(sessions=3), {"lanes": {"limit": 2, "kept": 0}})

    assert found >= {"every session took every turn", "every request ended as planned"}


async def test_a_wave_that_does_not_fill_is_let_go() -> None:
    found = await failed(small_plan(sessions=2), wave_seconds=0)

    assert found == {"peak is exactly 2 lanes, 64 bytes"}


class Silent(Probe):
    """A /status that can be read once, or never."""

    reads = 1

    async def read(self) -> Status | Unreadable:
        self.reads -= 1
        return await super().read() if self.reads >= 0 else Unreadable("gone")


async def test_a_proxy_that_stops_accounting_for_itself_is_not_judged() -> None:
    assert await run(small_plan(sessions=2), probe=Silent) == Unreadable("gone")


async def test_a_target_that_accounts_for_nothing_is_not_judged() -> None:
    async with open_upstream() as upstream:
        probe = Probe(Address(host=HOST, port=upstream.port))

        assert isinstance(await probe.read(), Unreadable)


OWN_TURN = "the conversation's own turn is admitted at once"
CHILDREN = "of 12 children at once 7 run, 5 are refused"
BEGUN = "a stream that has begun frees nothing"
ENDED = "a stream that has ended lets one in"
REFUSALS = "as many refusals as planned"
SERVED = "its every turn is served in the end"


@pytest.mark.parametrize(
    ("sections", "changed", "flaws"),
    [
        (
            {"workflow": {"turns": 64}},
            {},
            {OWN_TURN, CHILDREN, BEGUN, ENDED, REFUSALS},
        ),
        ({"workflow": {"turns": 7, "kept": 0}}, {}, {OWN_TURN, BEGUN, ENDED, REFUSALS, SERVED}),
        ({"lanes": {"limit": 3, "kept": 0}}, {}, {CHILDREN, SERVED}),
        ({}, {"wave_seconds": 0}, {OWN_TURN, CHILDREN, BEGUN, ENDED}),
    ],
    ids=["nothing bounds it", "its children starve it", "its lanes run out", "it does not settle"],
)
async def test_a_fan_out_alone_that_goes_wrong_is_found_out(
    sections: Sections, changed: dict[str, Any], flaws: set[str]
) -> None:
    plan = small_plan(fan_out=True)

    assert await failed(plan, sections, phases=(fan_out,), **changed) >= flaws
