"""One run: the phases in which simulated sessions load a proxy, and what comes out of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from harness.recall.evidence import FanOutEvidence, RunEvidence, WaveSample
from harness.recall.fanout import Conductor
from harness.recall.faults import RecallTransport
from harness.recall.http_line import HttpLine
from harness.recall.line import SessionLine
from harness.recall.plan import Plan, SessionPlan
from harness.recall.probe import Probe, Status, Unreadable
from harness.recall.proxy import Target, read_resident
from harness.recall.session import ClientSession
from harness.recall.stage import Stage
from harness.recall.upstream import UpstreamMemory
from harness.recall.watch import Notes
from harness.recall.ws_line import WsLine

WAVE_SECONDS = 20.0
"""A wave that is not complete by then is let go as it is, and the run fails."""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """The state that the phases share."""

    plan: Plan
    target: Target
    stage: Stage
    memory: UpstreamMemory
    notes: Notes
    probe: Probe
    wave_seconds: float = WAVE_SECONDS
    waves: list[WaveSample] = field(default_factory=list)
    beyond: Status | Unreadable | None = None
    fan_out: FanOutEvidence | None = None

    def session(self, plan: SessionPlan, transport: RecallTransport | None = None) -> ClientSession:
        over_ws = (transport or self.plan.transport) is RecallTransport.WS
        kind: type[WsLine | HttpLine] = WsLine if over_ws else HttpLine
        line: SessionLine = kind(self.target.address, plan)
        return ClientSession(plan, line, self.notes)


Phase = Callable[[Run], Awaitable[None]]


async def waves(run: Run) -> None:
    """Run all sessions together, each wave held until every session has arrived."""
    async with trio.open_nursery() as nursery:
        for plan in run.plan.waves:
            nursery.start_soon(_take_part, run, plan)
        nursery.start_soon(_conduct, run)


async def faults(run: Run) -> None:
    """Run as many sessions at once as before; each meets its faults between healthy turns."""
    async with trio.open_nursery() as nursery:
        for plan in run.plan.faulty:
            nursery.start_soon(run.session(plan).run)


async def fan_out(run: Run) -> None:
    """Run one conversation alone, with more children at once than its budget has turns."""
    if run.plan.fan_out is not None:
        conductor = Conductor(run.plan.fan_out, run.stage.family, run.session)
        run.fan_out = await conductor.run(run.probe, run.wave_seconds)


PHASES: tuple[Phase, ...] = (waves, faults, fan_out)


async def take_through(run: Run, phases: tuple[Phase, ...] = PHASES) -> RunEvidence | Unreadable:
    """Take a proxy through the phases; Unreadable when it does not account for itself."""
    began = trio.current_time()
    before = await run.probe.read()
    if isinstance(before, Unreadable):
        return before
    for phase in phases:
        await phase(run)
    after = await run.probe.wait_back_at(before)
    if isinstance(after, Unreadable):
        return after
    return RunEvidence(
        plan=run.plan,
        own_child=run.target.pid is not None,
        before=before,
        after=after,
        waves=tuple(run.waves),
        beyond=run.beyond,
        seen=tuple(run.notes.seen),
        client_problems=tuple(run.notes.problems),
        upstream_problems=tuple(run.memory.problems),
        sends=dict(run.memory.sends),
        cuts=dict(run.memory.cuts),
        seconds=trio.current_time() - began,
        resident=read_resident(run.target.pid),
        fan_out=run.fan_out,
    )


async def _take_part(run: Run, plan: SessionPlan) -> None:
    await run.session(plan).run()
    await run.stage.leave(plan.thread_id)


async def _conduct(run: Run) -> None:
    """Let each wave go once it is complete and /status has been read."""
    last = len(run.plan.waves[0].turns) - 1
    for wave in range(last + 1):
        with trio.move_on_after(run.wave_seconds):
            await run.stage.wait_full(wave)
        if run.stage.members == 0:
            return
        status = await run.probe.read()
        arrived = run.stage.arrived(wave)
        run.waves.append(WaveSample(wave=wave, arrived=arrived, status=status))
        if wave == last and run.plan.beyond:
            await _ask_beyond(run)
        run.stage.open(wave)


async def _ask_beyond(run: Run) -> None:
    """While every lane is held, ask for more, over each transport."""
    for plan, transport in zip(run.plan.beyond, RecallTransport, strict=True):
        await run.session(plan, transport).ask_once()
    run.beyond = await run.probe.read()
