"""TurnRecord: what is kept of one finished turn, or of one refusal.

Digests, numbers and names from our own tables: no prompt, token, header, path or turn metadata.
"""

from dataclasses import dataclass

from proxy.journal.outcome import Outcome
from proxy.responses.events import UNKNOWN_USAGE, TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """`wall` is seconds since the epoch; durations are milliseconds; None is unknown, not 0."""

    wall: float
    principal: str
    transport: str
    outcome: Outcome
    lane: str | None = None
    root: str | None = None
    worker: bool = False
    model: str | None = None
    upstream: str | None = None
    account: str | None = None
    move: str | None = None
    """How the turn came to its account: `proxy.accounts.routes.Move`, and `reason` why."""
    reason: str | None = None
    attempts: int = 0
    status: int | None = None
    refusal: str | None = None
    first_event_ms: float | None = None
    total_ms: float = 0.0
    usage: TokenUsage = UNKNOWN_USAGE
    bytes_up: int = 0
    bytes_down: int = 0
