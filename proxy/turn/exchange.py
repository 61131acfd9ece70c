"""Exchange: what a turn needs to know of its client."""

from dataclasses import dataclass
from typing import Protocol

from lifecycle import Lease, TurnScope
from proxy.journal.record import Transport
from proxy.refusal import Refused
from proxy.responses.sse import Noted
from proxy.turn.ended import Ended
from proxy.turn.outbox import Outbox
from proxy.upstream.interface import UpstreamRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the exchange wants sent."""

    request: UpstreamRequest
    model: str | None
    previous_response_id: str | None = None
    """Set where the request itself goes on from a response that the upstream is to know."""


class Exchange(Protocol):
    """A turn's client, as far as the turn needs to know it."""

    transport: Transport
    streams_only: bool
    """An upstream that answers with one whole body is of no use to it."""
    outbox: Outbox
    """Where the turn's events go, and at last how it ended."""
    turn_scope: TurnScope
    """Through this the client's side cancels the turn."""

    async def prepare(self, lease: Lease) -> Prepared | Refused:
        """Return the request, once the client has sent all of it; or why there is none."""
        ...

    def observe(self, event: Noted) -> None:
        """Take in an event that is noted; the terminal one is, too."""
        ...

    def conclude(self, ended: Ended) -> Ended:
        """Store what is to be remembered, now that the turn's leases are back, and return how the
        turn ended; may add a last event."""
        ...
