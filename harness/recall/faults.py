"""PURE which turn fails how, and what a client may see of each fault."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class RecallTransport(StrEnum):
    WS = "ws"
    HTTP = "http"


class Step(StrEnum):
    """The two requests of a turn: the model calls tools, then it is told what they gave."""

    CALLS = "calls"
    RECALL = "recall"


class Fault(StrEnum):
    SLOW_READER = "slow-reader"
    HANG_UP_WAITING = "hang-up-waiting"
    HANG_UP_STREAMING = "hang-up-streaming"
    REPLACE = "replace"
    INTERRUPT = "interrupt"
    STATUS_429 = "upstream-429"
    STATUS_503 = "upstream-503"
    NO_FIRST_BYTE = "no-first-byte"
    CUT_STREAM = "cut-stream"
    FAILED = "response-failed"


class End(StrEnum):
    """The ways in which a request ends, as its client sees it."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    CUT = "cut"
    LEFT = "left"
    REPLACED = "replaced"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    kind: Fault
    step: Step
    delay_seconds: float
    """Seconds that a slow reader pauses, or that a client waits before it hangs up."""


SERVED = frozenset({None, Fault.SLOW_READER})
"""With these a request is served; after the others it is asked for once more."""

KEEPS_LINE = frozenset({Fault.SLOW_READER, Fault.REPLACE, Fault.INTERRUPT, Fault.FAILED})
"""After these Codex goes on over the same WebSocket; after the others it opens a new one."""

UNTIL_CUT = frozenset(
    {Fault.HANG_UP_WAITING, Fault.HANG_UP_STREAMING, Fault.REPLACE, Fault.INTERRUPT}
)
"""In these the upstream goes on until the proxy cuts it."""

_BEFORE_FIRST_EVENT = frozenset({Fault.STATUS_429, Fault.STATUS_503, Fault.NO_FIRST_BYTE})


def kinds(transport: RecallTransport) -> tuple[Fault, ...]:
    """Return the faults of a transport: only a WebSocket has a second create to replace by."""
    return tuple(
        fault for fault in Fault if transport is RecallTransport.WS or fault is not Fault.REPLACE
    )


def deal(
    rng: Random, transport: RecallTransport, sessions: int, each: int
) -> tuple[tuple[Fault, ...], ...]:
    """Deal faults to sessions, at least `each` to every one, and every kind at least once."""
    deck = list(kinds(transport))
    each = max(each, -(-len(deck) // sessions))
    dealt: list[Fault] = []
    while len(dealt) < sessions * each:
        rng.shuffle(deck)
        dealt += deck
    return tuple(tuple(dealt[i * each : (i + 1) * each]) for i in range(sessions))


def ends_allowed(fault: Fault | None, transport: RecallTransport) -> frozenset[End]:
    """Return how a request with this fault (None: a healthy one) may end for its client."""
    match fault:
        case None | Fault.SLOW_READER:
            return frozenset({End.COMPLETED})
        case Fault.HANG_UP_WAITING | Fault.HANG_UP_STREAMING:
            return frozenset({End.LEFT})
        case Fault.REPLACE:
            return frozenset({End.REPLACED})
        case Fault.INTERRUPT:
            return frozenset({End.INCOMPLETE if transport is RecallTransport.WS else End.LEFT})
        case Fault.STATUS_429 | Fault.STATUS_503 | Fault.NO_FIRST_BYTE:
            return frozenset({End.REFUSED})
        case Fault.CUT_STREAM:
            return frozenset({End.REFUSED if transport is RecallTransport.WS else End.CUT})
        case _:
            return frozenset({End.FAILED})


def statuses_allowed(fault: Fault | None) -> Sequence[int]:
    """Return the statuses of a refusal: an upstream's own, or a gateway's."""
    match fault:
        case Fault.STATUS_429:
            return (429,)
        case Fault.STATUS_503:
            return (503,)
        case Fault.NO_FIRST_BYTE | Fault.CUT_STREAM:
            return (502, 504)
        case _:
            return ()


def sends_allowed(fault: Fault | None) -> range:
    """Return how often the upstream may see one request of a client.

    A failure before the first event may be tried once more; after it, never. A client that hangs
    up while it waits may be gone before anything was sent.
    """
    if fault in _BEFORE_FIRST_EVENT:
        return range(1, 3)
    if fault is Fault.HANG_UP_WAITING:
        return range(2)
    return range(1, 2)
