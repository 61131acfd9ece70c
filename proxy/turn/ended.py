"""How a turn ended, as a value, and what its client is still to be told."""

from dataclasses import dataclass

from proxy.headers import Headers
from proxy.journal.outcome import Outcome
from proxy.responses.events import UNKNOWN_USAGE, TokenUsage
from proxy.responses.sse import Event
from proxy.upstream.interface import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The upstream's status and headers, those that may go down."""

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
class SpentQuota:
    """No account has quota left; `resets_at` (seconds since the epoch) is when the first has."""

    resets_at: float | None
    plan_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a turn ended, and what its client is still to be told.

    At most one of: `final`, the terminal event, held back until the leases were returned; `refusal`
    with its `detail`, our own no; `rejected`, the upstream's no; `failure`, no reply at all.
    """

    outcome: Outcome
    final: Event | None = None
    refusal: str | None = None
    retry_seconds: float | None = None
    detail: str = ""
    spent: SpentQuota | None = None
    asked: bool = False
    """A refusal of ours after all: some provider has been asked for this turn."""
    rejected: Rejected | None = None
    failure: Failure | None = None
    usage: TokenUsage = UNKNOWN_USAGE
