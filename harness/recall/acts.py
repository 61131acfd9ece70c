"""PURE the scripted upstream's acts for one request: send, hold, refuse, or drop it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from harness.recall.faults import Fault, Step
from harness.recall.plan import Plan, ScriptedExchange, SessionPlan
from harness.recall.requests import HeaderPairs
from harness.recall.script import chunked, events, sse


@dataclass(frozen=True, slots=True)
class SendBytes:
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
    """Say nothing more; the request ends when its client leaves."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection in the middle of what it was doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReply:
    """An answer that is not a stream."""

    status: int
    body: bytes
    headers: HeaderPairs = field(default=())


Act = SendBytes | HoldWave | HoldTurn | UntilCut | Drop | PlainReply

SHOWN_BEFORE_CUT = 4
"""Created, added, and two deltas: what a client sees before it replaces, hangs up, or is cut."""


def acts(plan: Plan, session: SessionPlan, exchange: ScriptedExchange) -> Iterator[Act]:
    """Yield the acts of one request, in order."""
    turn = session.turns[exchange.turn]
    said = events(plan, session, exchange)
    rng = Random(f"{plan.seed} {exchange.tag}")
    if turn.held and exchange.step is Step.CALLS:
        yield HoldWave(turn.number)
    if turn.stands and exchange.step is Step.CALLS:
        yield SendBytes(sse(said[:SHOWN_BEFORE_CUT]))
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
            yield SendBytes(sse(said[:SHOWN_BEFORE_CUT]))
            yield UntilCut()
        case Fault.INTERRUPT:
            yield SendBytes(sse(said[:-1]))
            yield UntilCut()
        case Fault.CUT_STREAM:
            yield SendBytes(sse(said[: SHOWN_BEFORE_CUT + 1])[:-20])
            yield Drop()
        case _:
            yield from map(SendBytes, chunked(sse(said), rng))


def _refusal(status: int, code: str, headers: HeaderPairs = ()) -> PlainReply:
    error = {"type": code, "code": code, "message": f"the scripted model says {status}"}
    body = msgspec.json.encode({"error": error})
    return PlainReply(status=status, body=body, headers=headers)
