"""WebSocketTurn: one `response.create` on a WebSocket, as its turn sees it.

StoredTranscript: the transcript of one WebSocket, held against the memory gate, which may evict it.
"""

import trio

from lifecycle import Cause, Lease, LeaseId, MemoryGate, Reservation, TurnScope, Waiting
from proxy.headers import HeaderList
from proxy.journal.record import Outcome, Transport
from proxy.responses.events import interrupted, output_item, response_id
from proxy.responses.forwarding import upward_from_frame
from proxy.responses.frames import Create, post_body
from proxy.responses.sse import TERMINAL_TYPES, Noted
from proxy.responses.transcript import OutputItem, Transcript, continued, output_item_of
from proxy.turn.ended import Cancelled, Ended, Finished, Interrupted, outcome_of
from proxy.turn.exchange import Prepared
from proxy.turn.outbox import Outbox
from proxy.upstream.interface import UpstreamRequest


class WebSocketTurn:
    """One turn. `kept` is given its transcript after the leases are back and before the client sees
    the end."""

    transport = Transport.WEBSOCKET
    streams_only = True

    def __init__(
        self,
        *,
        create: Create,
        before: Transcript | None,
        headers: HeaderList,
        query: bytes,
        outbox: Outbox,
        kept: "StoredTranscript",
    ) -> None:
        self._create: Create | None = create
        self._before = before
        self._headers = headers
        self._query = query
        self.outbox = outbox
        self._kept = kept
        self._input: tuple[bytes, ...] = ()
        self._output: list[OutputItem] = []
        self._created: bytes | None = None
        self._lease_id: LeaseId | None = None
        self.waiting: Waiting | None = None
        self.response_id: str | None = None
        self.terminal_seen = False
        self.forgotten = False
        self.turn_scope = TurnScope()
        self.finished = trio.Event()

    @property
    def over(self) -> bool:
        """The turn has ended and its lease is back; its last frames may still be on their way."""
        return self.outbox.ended is not None

    @property
    def speaking(self) -> bool:
        """Whether its events are still on their way; other frames then go between them."""
        return not self.over and not self.outbox.discarded

    @property
    def lease_id(self) -> LeaseId | None:
        """The lease that it holds, from the step that grants it; None before."""
        if self._lease_id is None and self.waiting is not None:
            return self.waiting.lease_id
        return self._lease_id

    def replace(self) -> None:
        """Cancel it. Nothing more of it reaches the client."""
        self.outbox.discard()
        self.turn_scope.cancel(Cause.REPLACED)

    def interrupt(self, named: str | None) -> None:
        """End it at once with `response.incomplete`, if it is the response that is meant."""
        if self._created is None or self.terminal_seen or named not in (None, self.response_id):
            return
        self.turn_scope.cancel(Cause.INTERRUPTED)

    async def prepare(self, lease: Lease) -> Prepared:
        self._lease_id = lease.id
        create, self._create = self._create, None  # the frame is not kept beside the body
        assert create is not None
        self._input = continued(self._before, create.input)
        self._before = None
        request = UpstreamRequest(
            query=self._query,
            headers=upward_from_frame(self._headers, create.metadata),
            body=post_body(create.fields, self._input),
        )
        return Prepared(request=request, model=create.model)

    def observe(self, event: Noted) -> None:
        if event.type in TERMINAL_TYPES:
            self.terminal_seen = True
        elif event.type == "response.output_item.done":
            if item := output_item(event.data):
                self._output.append(output_item_of(item))
        elif event.type == "response.created":
            self._created = event.data
            self.response_id = response_id(event.data)

    def conclude(self, ended: Ended) -> Ended:
        if self.outbox.discarded:  # replaced: its client is past it, however it ended meanwhile
            return Cancelled(cause=Cause.REPLACED)
        if ended == Cancelled(cause=Cause.INTERRUPTED) and self._created is not None:
            ended = Interrupted(final=interrupted(self._created))
        failed = outcome_of(ended) is Outcome.FAILED
        if isinstance(ended, Finished | Interrupted) and not (failed or self.forgotten):
            self._kept.remember(
                Transcript(
                    response_id=response_id(ended.final.data or b""),
                    items=self._input,
                    output=tuple(self._output),
                )
            )
        return ended


class StoredTranscript:
    """The transcript that its socket can continue, None if it was evicted or never stored. Then the
    client is told that its response is not known, and sends everything again."""

    def __init__(self, memory: MemoryGate) -> None:
        self._memory = memory
        self._reservation: Reservation | None = None
        self.transcript: Transcript | None = None

    def remember(self, transcript: Transcript) -> None:
        """Keep this transcript in place of the one before, if there is room for it."""
        self.forget()
        self._reservation = self._memory.reserve(transcript.size, self.forget)
        if self._reservation is not None:
            self.transcript = transcript

    def forget(self) -> None:
        self.transcript = None
        if self._reservation is not None:
            reservation, self._reservation = self._reservation, None
            reservation.give_back()
