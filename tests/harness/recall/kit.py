"""Plans that take no time, and the evidence of runs in which all went well."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from harness.recall.budget import REASON, expected
from harness.recall.evidence import (
    LANE_BYTES,
    FanOutEvidence,
    FanOutSample,
    Moment,
    RunEvidence,
    WaveSample,
)
from harness.recall.faults import (
    UNTIL_CUT,
    End,
    Fault,
    RecallTransport,
    Step,
    ends_allowed,
    statuses_allowed,
)
from harness.recall.line import LineRefused
from harness.recall.plan import WORKERS, FanOut, Pace, Plan, Planned, ScriptedExchange, make_plan
from harness.recall.probe import (
    LaneFigures,
    MemoryFigures,
    Status,
    TurnFigures,
    WebSocketFigures,
    WorkflowFigures,
)
from harness.recall.watch import SeenAnswer

AT_ONCE = Pace(tool_seconds=(0, 0), fault_seconds=(0, 0))


def small_plan(
    *,
    seed: int = 1,
    transport: RecallTransport = RecallTransport.HTTP,
    sessions: int = 2,
    rounds: int = 1,
    **other: Any,
) -> Plan:
    return make_plan(
        seed=seed, transport=transport, sessions=sessions, rounds=rounds, pace=AT_ONCE, **other
    )


def status(
    *,
    active: int = 0,
    peak: int = 0,
    held: int = 0,
    admitted: int = 0,
    refused: int = 0,
    roots: tuple[int, int, int] = (0, 0, 0),
) -> Status:
    """A status in which `active` lanes and turns are held; `roots`: tracked, active, refused."""
    tracked, busy, refused_of_roots = roots
    refusals = {"lanes_at_capacity": refused, REASON: refused_of_roots}
    return Status(
        service="turnlane",
        version="0",
        pid=1,
        lanes=LaneFigures(
            active=active,
            peak=peak,
            peak_retained_bytes=LANE_BYTES * peak,
            admitted=admitted,
            refused=refused,
            retained_bytes=LANE_BYTES * active,
            limit=64,
        ),
        turns=TurnFigures(active=active, peak=peak, admitted=admitted, refused=0, limit=256),
        websockets=WebSocketFigures(active=0, limit=256),
        memory=MemoryFigures(held_bytes=held, limit_bytes=2**28),
        workflows=WorkflowFigures(
            tracked=tracked, active=busy, refused=refused_of_roots, limit=512
        ),
        refusals={reason: count for reason, count in refusals.items() if count},
    )


def sound(plan: Plan, **changed: Any) -> RunEvidence:
    """The evidence of a run without a flaw."""
    sessions = len(plan.waves)
    rounds = len(plan.waves[0].turns)
    refused = len(plan.beyond)
    planned = [*plan.exchanges(), *fanned(plan)]
    told_to_wait = plan.fan_out.refusals if plan.fan_out else 0
    evidence = RunEvidence(
        plan=plan,
        own_child=True,
        before=status(),
        after=status(
            peak=sessions, refused=refused, admitted=len(planned), roots=(1, 0, told_to_wait)
        ),
        waves=tuple(
            WaveSample(wave=i, arrived=sessions, status=status(active=sessions, peak=sessions))
            for i in range(rounds)
        ),
        beyond=status(active=sessions, refused=refused) if refused else None,
        seen=tuple(seen_as_planned(p, plan.transport) for p in planned)
        + tuple(seen_busy(p, plan.transport) for p in fanned(plan, refused=True))
        + tuple(seen_refused(p) for p in plan.refused()),
        client_problems=(),
        upstream_problems=(),
        sends={p.exchange.tag: 1 for p in planned},
        cuts={p.exchange.tag: 1 for p in planned if p.fault in UNTIL_CUT},
        seconds=1.0,
        fan_out=stood(plan.fan_out, sessions) if plan.fan_out else None,
    )
    return replace(evidence, **changed)


def stood(fan_out: FanOut, peak: int) -> FanOutEvidence:
    """A fan-out as it should stand, moment by moment."""
    samples: dict[Moment, FanOutSample] = {}
    for moment in Moment:
        standing, refused, refusals = expected(fan_out, moment)
        told = status(active=standing, peak=peak, roots=(1, 1, refusals))
        samples[moment] = FanOutSample(standing=standing, refused=refused, status=told)
    return FanOutEvidence(before=status(peak=peak), samples=samples, interactive_seconds=0.02)


def fanned(plan: Plan, *, refused: bool = False) -> Iterator[Planned]:
    """The requests of a fan-out that are served, or the first of each that is refused."""
    if plan.fan_out is None:
        return
    late = plan.fan_out.workers[WORKERS:]
    for session in (plan.fan_out.root, *plan.fan_out.workers):
        for turn in session.turns:
            for step in Step:
                again = session in late and step is Step.CALLS
                if again or not refused:
                    exchange = ScriptedExchange(
                        thread_id=session.thread_id,
                        turn=turn.number,
                        step=step,
                        attempt=1 + (again and not refused),
                    )
                    yield Planned(session=session, turn=turn, exchange=exchange, fault=None)


def seen_busy(planned: Planned, transport: RecallTransport) -> SeenAnswer:
    """What a child sees for which its root has no turn left."""
    told = LineRefused(
        status=429 if transport is RecallTransport.WS else 503,
        code="queue_capacity_exceeded",
        headers={"retry-after": "5", "x-turnlane-refusal": REASON},
    )
    return replace(seen_refused(planned), refused=told)


def seen_as_planned(planned: Planned, transport: RecallTransport) -> SeenAnswer:
    (end,) = ends_allowed(planned.fault, transport)
    ids = tuple(call.call_id for call in planned.turn.calls)
    complete = end is End.COMPLETED and planned.exchange.step == "calls"
    refused = None
    if end is End.REFUSED:
        told = statuses_allowed(planned.fault)[0]
        refused = LineRefused(status=told, code="x", headers={"retry-after": "2"})
    terminals = {
        End.COMPLETED: ("response.completed",),
        End.INCOMPLETE: ("response.incomplete",),
        End.FAILED: ("response.failed",),
        End.REFUSED: ("error",),
    }
    return SeenAnswer(
        session=planned.session.name,
        exchange=planned.exchange,
        end=end,
        call_ids=ids if complete else (),
        terminals=terminals.get(end, ()),
        problems=(),
        refused=refused,
        seconds=0.25,
    )


def seen_refused(planned: Planned, **headers: str) -> SeenAnswer:
    """What a session sees for which there is no lane."""
    told = headers or {"retry-after": "2", "x-turnlane-refusal": "lanes_at_capacity"}
    return SeenAnswer(
        session=planned.session.name,
        exchange=planned.exchange,
        end=End.REFUSED,
        call_ids=(),
        terminals=("error",),
        problems=(),
        refused=LineRefused(status=503, code="server_busy", headers=told),
        seconds=0.01,
    )


def planned_fault(plan: Plan, fault: Fault) -> Planned:
    """The first request that meets this fault."""
    return next(planned for planned in plan.exchanges() if planned.fault is fault)
