"""How a turn ended, as a value: exactly one of the members of `Ended`.

A refusal of ours (`Refused`) and an attempt without a reply (`Failure`) are endings as they are.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, assert_never

from lifecycle import Cause
from proxy.headers import Headers
from proxy.journal.record import Outcome
from proxy.refusal import Refused
from proxy.responses.events import UNKNOWN_USAGE, TokenUsage
from proxy.responses.sse import Event
from proxy.upstream.interface import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The status and headers of the upstream's reply, as far as they may go down."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeReply:
    """A reply read to its end: status, headers and body as the upstream sent them."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(WholeReply):
    """A reply other than 2xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The upstream's terminal event, held back until the leases are returned."""

    final: Event
    usage: TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A whole body that went down as it came, without a terminal event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The upstream's stream broke after its first event."""

    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Its client interrupted the response, and gets `response.incomplete`."""

    final: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """Another connection took its lane over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """An ending of which the client is told nothing more: it is gone, or caused it."""

    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A bug of ours; the log has it."""


Answer = Finished | Delivered | Rejected | Failure | Cut
"""What one send came to."""
Ended = Answer | Refused | Interrupted | Displaced | Cancelled | Broken

_OUTCOMES: Final = MappingProxyType(
    {
        "response.completed": Outcome.COMPLETED,
        "response.incomplete": Outcome.INCOMPLETE,
        "response.failed": Outcome.FAILED,
        "error": Outcome.FAILED,
    }
)


def outcome_of(ended: Ended) -> Outcome:  # noqa: C901  one case for each ending
    """Return what the journal calls an ending."""
    match ended:
        case Finished():
            return _OUTCOMES[ended.final.type]
        case Delivered():
            return Outcome.COMPLETED
        case Rejected():
            return Outcome.UPSTREAM_REFUSED
        case Failure():
            return Outcome.UPSTREAM_FAILED
        case Cut():
            return Outcome.CUT
        case Refused():
            return Outcome.REFUSED
        case Interrupted():
            return Outcome.INTERRUPTED
        case Displaced():
            return Outcome.DISPLACED
        case Cancelled():
            return Outcome(ended.cause.value)
        case Broken():
            return Outcome.BROKEN
        case _:
            assert_never(ended)


def cancelled_by(cause: Cause) -> Displaced | Cancelled:
    """Return how a turn ended that was cancelled for this cause."""
    return Displaced() if cause is Cause.DISPLACED else Cancelled(cause=cause)


def usage_of(ended: Ended) -> TokenUsage:
    """Return the tokens that the upstream counted, where its terminal event says so."""
    return ended.usage if isinstance(ended, Finished) else UNKNOWN_USAGE
