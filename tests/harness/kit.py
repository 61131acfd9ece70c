"""Plans that take no time, and the evidence of runs in which all went well."""

from dataclasses import replace
from typing import Any

from harness.evidence import LANE_BYTES, Evidence, WaveSample
from harness.faults import UNTIL_CUT, End, Fault, Transport, ends_allowed, statuses_allowed
from harness.line import Refused
from harness.plan import Pace, Plan, Planned, make_plan
from harness.probe import Lanes, Memory, Status, Turns, WebSockets
from harness.watch import Seen

AT_ONCE = Pace(tool_seconds=(0, 0), fault_seconds=(0, 0))


def small_plan(
    *,
    seed: int = 1,
    transport: Transport = Transport.HTTP,
    sessions: int = 2,
    rounds: int = 1,
    **other: Any,
) -> Plan:
    return make_plan(
        seed=seed, transport=transport, sessions=sessions, rounds=rounds, pace=AT_ONCE, **other
    )


def status(
    *, active: int = 0, peak: int = 0, held: int = 0, admitted: int = 0, refused: int = 0
) -> Status:
    """A status in which `active` lanes and turns are held."""
    return Status(
        service="turnlane",
        version="0",
        pid=1,
        lanes=Lanes(
            active=active,
            peak=peak,
            peak_retained_bytes=LANE_BYTES * peak,
            admitted=admitted,
            refused=refused,
            retained_bytes=LANE_BYTES * active,
            limit=64,
        ),
        turns=Turns(active=active, peak=peak, admitted=admitted, refused=0, limit=256),
        websockets=WebSockets(active=0, limit=256),
        memory=Memory(held_bytes=held, limit_bytes=2**28),
        refusals={"lanes_at_capacity": refused} if refused else {},
    )


def sound(plan: Plan, **changed: Any) -> Evidence:
    """The evidence of a run without a flaw."""
    sessions = len(plan.waves)
    rounds = len(plan.waves[0].turns)
    refused = len(plan.beyond)
    planned = list(plan.exchanges())
    evidence = Evidence(
        plan=plan,
        own_child=True,
        before=status(),
        after=status(peak=sessions, refused=refused, admitted=len(planned)),
        waves=tuple(
            WaveSample(wave=i, arrived=sessions, status=status(active=sessions, peak=sessions))
            for i in range(rounds)
        ),
        beyond=status(active=sessions, refused=refused) if refused else None,
        seen=tuple(seen_as_planned(p, plan.transport) for p in planned)
        + tuple(seen_refused(p) for p in plan.refused()),
        client_problems=(),
        upstream_problems=(),
        sends={p.exchange.tag: 1 for p in planned},
        cuts={p.exchange.tag: 1 for p in planned if p.fault in UNTIL_CUT},
        seconds=1.0,
    )
    return replace(evidence, **changed)


def seen_as_planned(planned: Planned, transport: Transport) -> Seen:
    (end,) = ends_allowed(planned.fault, transport)
    ids = tuple(call.call_id for call in planned.turn.calls)
    complete = end is End.COMPLETED and planned.exchange.step == "calls"
    refused = None
    if end is End.REFUSED:
        told = statuses_allowed(planned.fault)[0]
        refused = Refused(status=told, code="x", headers={"retry-after": "2"})
    terminals = {
        End.COMPLETED: ("response.completed",),
        End.INCOMPLETE: ("response.incomplete",),
        End.FAILED: ("response.failed",),
        End.REFUSED: ("error",),
    }
    return Seen(
        session=planned.session.name,
        exchange=planned.exchange,
        end=end,
        call_ids=ids if complete else (),
        terminals=terminals.get(end, ()),
        problems=(),
        refused=refused,
        seconds=0.25,
    )


def seen_refused(planned: Planned, **headers: str) -> Seen:
    """What a session sees for which there is no lane."""
    told = headers or {"retry-after": "2", "x-turnlane-refusal": "lanes_at_capacity"}
    return Seen(
        session=planned.session.name,
        exchange=planned.exchange,
        end=End.REFUSED,
        call_ids=(),
        terminals=("error",),
        problems=(),
        refused=Refused(status=503, code="server_busy", headers=told),
        seconds=0.01,
    )


def planned_fault(plan: Plan, fault: Fault) -> Planned:
    """The first request that meets this fault."""
    return next(planned for planned in plan.exchanges() if planned.fault is fault)
