"""Exchange: what a turn needs to know of its client; Progress: what becomes known of the turn."""

from dataclasses import dataclass, field
from typing import Protocol

import trio

from lifecycle import Lease
from proxy.outbox import Ended, Outcome
from proxy.upstream.base import UpstreamRequest
from proxy.upstream.sse import Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the exchange wants sent."""

    request: UpstreamRequest
    model: str | None


class Exchange(Protocol):
    """A turn's client, as far as the turn needs to know it."""

    transport: str
    streams_only: bool
    """An upstream that answers with one whole body is of no use to it."""

    async def prepare(self, lease: Lease) -> Prepared | Ended:
        """The request, once the client has sent all of it; or why there is none."""
        ...

    def observe(self, event: Noted) -> None:
        """Called for every event that is noted, the terminal one included."""
        ...

    def cause(self) -> Outcome:
        """Why the turn was cancelled from outside."""
        ...

    def conclude(self, ended: Ended) -> Ended:
        """The turn's leases are back: store what is to be remembered; may add a last event."""
        ...


@dataclass(slots=True)
class Progress:
    started: float
    lease: Lease | None = None
    ended: Ended | None = None
    model: str | None = None
    attempts: int = 0
    status: int | None = None
    upstream: str | None = None
    committed_at: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    patience: trio.CancelScope = field(default_factory=trio.CancelScope)
