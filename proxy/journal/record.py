"""TurnRecord: what is kept of one finished turn, one refusal, or one command of an operator.

Digests, numbers and names from our own tables: no prompt, token, header, path or turn metadata.
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.accounts.route import Move
from proxy.responses.events import UNKNOWN_USAGE, TokenUsage


class Transport(StrEnum):
    """How a request arrived: a turn by HTTP or WebSocket, an operator's command by the control
    socket."""

    HTTP = "http"
    WEBSOCKET = "websocket"
    CONTROL = "control"


class Outcome(StrEnum):
    """How a turn ended; the last three are what an operator did to a workflow or an account."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_FAILED = "upstream_failed"
    CUT = "cut"
    INTERRUPTED = "interrupted"
    REPLACED = "replaced"
    DISPLACED = "displaced"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    SHUTDOWN = "shutdown"
    BROKEN = "broken"
    LISTED = "listed"
    CLEARED = "cleared"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """`wall` is seconds since the epoch; durations are milliseconds; None is unknown, not 0."""

    wall: float
    principal: str
    transport: Transport
    outcome: Outcome
    lane: str | None = None
    root: str | None = None
    worker: bool = False
    model: str | None = None
    upstream: str | None = None
    account: str | None = None
    move: Move | None = None
    """How the turn came to its account."""
    reason: str | None = None
    """Why it came there, or the command that changed an account."""
    attempts: int = 0
    status: int | None = None
    refusal: str | None = None
    """A `Reason`; as text, since another version may have written the journal."""
    first_event_ms: float | None = None
    total_ms: float = 0.0
    usage: TokenUsage = UNKNOWN_USAGE
    bytes_up: int = 0
    bytes_down: int = 0
