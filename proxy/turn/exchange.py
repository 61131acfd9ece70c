"""Exchange: what a turn needs to know of its client; Progress: what becomes known of the turn."""

from dataclasses import dataclass, field
from typing import Protocol

import trio

from lifecycle import Lease
from proxy.accounts.claim import IssuedKind
from proxy.accounts.route import Move
from proxy.headers import Headers, find
from proxy.journal.record import Transport
from proxy.refusal import Refused
from proxy.responses.sse import Noted
from proxy.turn.ended import Cause, Ended, Finished
from proxy.upstream.interface import UpstreamReply, UpstreamRequest


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

    async def prepare(self, lease: Lease) -> Prepared | Refused:
        """The request, once the client has sent all of it; or why there is none."""
        ...

    def observe(self, event: Noted) -> None:
        """Called for every event that is noted, the terminal one included."""
        ...

    def cause(self) -> Cause:
        """Why the turn was cancelled from outside."""
        ...

    def conclude(self, ended: Ended) -> Ended:
        """The turn's leases are back: store what is to be remembered; may add a last event."""
        ...


class Serving(Protocol):
    """The account that serves, as far as the relay has something to tell it."""

    def answering(self) -> None: ...

    def learn_headers(self, headers: Headers) -> None: ...

    def learn_event(self, data: bytes) -> None: ...

    def gave(self, kind: IssuedKind, value: str | None) -> None: ...


@dataclass(slots=True)
class Progress:
    started: float
    lease: Lease | None = None
    finished: Finished | None = None
    """Set once the terminal event was read: from there the turn has ended, even if cancelled."""
    model: str | None = None
    attempts: int = 0
    status: int | None = None
    upstream: str | None = None
    serving: Serving | None = None
    account: str | None = None
    move: Move | None = None
    reason: str | None = None
    committed_at: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    patience: trio.CancelScope = field(default_factory=trio.CancelScope)

    def replied(self, reply: UpstreamReply) -> None:
        self.status, self.upstream = reply.status, reply.name
        if self.serving is not None:
            self.serving.learn_headers(reply.headers)
            self.serving.gave(IssuedKind.STATE, find(reply.headers, b"x-codex-turn-state"))
