"""PURE what the scripted upstream does with one request: send, hold, refuse, or drop it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from harness.recall.faults import Fault, Step
from harness.recall.plan import Exchange, Plan, SessionPlan
from harness.recall.script import chunked, events, sse
from harness.recall.wire import Headers


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class HoldWave:
    """Hold until every session of this wave has arrived."""

    wave: int


@dataclass(frozen=True, slots=True)
class HoldTurn:
    """Hold until this session alone is told to go on."""


@dataclass(frozen=True, slots=True)
class UntilCut:
    """Say nothing more; the client's going away is what ends this request."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection in the middle of what it was doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is no stream."""

    status: int
    body: bytes
    headers: Headers = field(default=())


Act = Send | HoldWave | HoldTurn | UntilCut | Drop | Answer

SHOWN_BEFORE_CUT = 4
"""Created, added, and two deltas: what a client sees before it replaces, hangs up, or is cut."""


def acts(plan: Plan, session: SessionPlan, exchange: Exchange) -> Iterator[Act]:
    """The acts of one request, in order."""
    turn = session.turns[exchange.turn]
    said = events(plan, session, exchange)
    rng = Random(f"{plan.seed} {exchange.tag}")
    if turn.held and exchange.step is Step.CALLS:
        yield HoldWave(turn.number)
    if turn.stands and exchange.step is Step.CALLS:
        yield Send(sse(said[:SHOWN_BEFORE_CUT]))
        yield HoldTurn()
        said = said[SHOWN_BEFORE_CUT:]
    match turn.fault_at(exchange.step, exchange.attempt):
        case Fault.STATUS_429:
            yield _refusal(429, "rate_limit_exceeded", (("retry-after", "1"),))
        case Fault.STATUS_503:
            yield _refusal(503, "overloaded")
        case Fault.NO_FIRST_BYTE:
            yield Drop()
        case Fault.HANG_UP_WAITING:
            yield UntilCut()
        case Fault.HANG_UP_STREAMING | Fault.REPLACE:
            yield Send(sse(said[:SHOWN_BEFORE_CUT]))
            yield UntilCut()
        case Fault.INTERRUPT:
            yield Send(sse(said[:-1]))
            yield UntilCut()
        case Fault.CUT_STREAM:
            yield Send(sse(said[: SHOWN_BEFORE_CUT + 1])[:-20])
            yield Drop()
        case _:
            yield from map(Send, chunked(sse(said), rng))


def _refusal(status: int, code: str, headers: Headers = ()) -> Answer:
    error = {"type": code, "code": code, "message": f"the scripted model says {status}"}
    body = msgspec.json.encode({"error": error})
    return Answer(status=status, body=body, headers=headers)
