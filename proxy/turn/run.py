"""TurnRunner: admit, send, conclude -- the story of one turn.

Theory of operation
-------------------
`run` is the owner of a turn: it waits for the lease, starts the turn's own task in the lease's
nursery, and waits until that nursery is empty. The task asks the exchange (HTTP or WebSocket) for
the request and has it sent (`proxy.turn.attempts`, `proxy.turn.send`), which moves events from the
upstream to the outbox. The first event is the commit: before it another send may be tried, after it
never. Events, how the turn ended and what its record says cross to the owner as values; only a bug
crosses as an exception.

The end has an order. The turn holds back the terminal event; the nursery exits, the lease is back,
the exchange has concluded (a WebSocket has stored its transcript), the record is written; then
`outbox.end` lets the event go. All of that is synchronous, so a cancelled turn ends the same way,
and a client that answers at once finds its lane free.
"""

import logging
from dataclasses import dataclass

import trio

from lifecycle import Admission, AdmissionRefused, Ask, Cause, Lease, Waiting
from proxy.errors import ClientStalled
from proxy.journal.journal import Journal
from proxy.journal.record import TurnRecord
from proxy.refusal import Refused, by_admission
from proxy.responses.events import TokenUsage
from proxy.turn.attempts import Attempts, SendTools, Served
from proxy.turn.ended import (
    Broken,
    Cut,
    Delivered,
    Ended,
    cancelled_by,
    outcome_of,
    usage_of,
)
from proxy.turn.exchange import Exchange, Prepared

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRunner:
    """What every turn of a process is run with."""

    admission: Admission
    tools: SendTools
    journal: Journal

    async def run(
        self, ask: Ask | Waiting, exchange: Exchange, after: trio.Event | None = None
    ) -> None:
        """Run one turn to its end, whatever that is; the outbox and the journal hear of it.

        It asks to be admitted once `after` is set; cancelled before that it leaves no record.
        """
        await _Turn(self, ask, exchange).run(after)


class _Turn:
    """One turn; what becomes known of it is kept here, and in its attempts."""

    def __init__(self, runner: TurnRunner, ask: Ask | Waiting, exchange: Exchange) -> None:
        self._runner = runner
        self._entry = ask
        self._ask = ask.ask if isinstance(ask, Waiting) else ask
        self._exchange = exchange
        self._asked_at: float | None = None
        self._lease: Lease | None = None
        self._prepared: Prepared | None = None
        self._attempts: Attempts | None = None
        self._ended: Ended | None = None

    async def run(self, after: trio.Event | None) -> None:
        admission, scope = self._runner.admission, self._exchange.turn_scope
        try:
            with scope:
                if after is not None:
                    await after.wait()
                self._asked_at = trio.current_time()
                async with admission.lease(self._entry, scope) as lease:
                    self._lease = lease
                    lease.client_stalled_seconds = self._exchange.outbox.stalled_seconds
                    lease.nursery.start_soon(self._serve, lease)
        except AdmissionRefused as no:
            self._ended = by_admission(no)
        except Exception:
            # Leaving from here it would cancel the writer, and the client would see no 500.
            logger.exception("a turn failed by a fault of ours")
            if self._over is None:  # a bug after the end takes nothing from the client
                self._ended = Broken()
        finally:
            self._conclude()

    async def _serve(self, lease: Lease) -> None:
        """The turn's own task: its end is the end of all others in the nursery."""
        prepared = await self._exchange.prepare(lease)
        if isinstance(prepared, Refused):
            self._ended = prepared
        else:
            self._prepared = prepared
            try:
                self._ended = await self._send(lease, prepared)
            except ClientStalled:
                self._exchange.turn_scope.cancel(Cause.CLIENT_STALLED)
        lease.nursery.cancel_scope.cancel()

    async def _send(self, lease: Lease, prepared: Prepared) -> Ended:
        """Raises ClientStalled."""
        attempts = self._attempts = Attempts(self._runner.tools, lease, self._exchange, prepared)
        ended = await attempts.run()
        if isinstance(ended, Cut | Delivered):
            await self._exchange.outbox.wait_taken()
        return ended

    @property
    def _over(self) -> Ended | None:
        """How the turn ended; also known where it was cancelled after its terminal event."""
        sends = [] if self._attempts is None else self._attempts.sends
        return self._ended or (sends[-1].finished if sends else None)

    def _cause(self) -> Cause:
        cause = self._exchange.turn_scope.cause
        if cause is None:  # its connection was cancelled: by its server, or with the service
            over = self._runner.admission.drain_is_over
            return Cause.SHUTDOWN if over else Cause.CLIENT_GONE
        return cause

    def _conclude(self) -> None:
        exchange = self._exchange
        over = self._over or cancelled_by(self._cause())
        ended = exchange.conclude(over)
        if self._asked_at is not None:
            self._runner.journal.record(self._record(ended, usage_of(over), self._asked_at))
        exchange.outbox.end(ended)

    def _record(self, ended: Ended, usage: TokenUsage, asked_at: float) -> TurnRecord:
        runner, ask, lease, prepared = self._runner, self._ask, self._lease, self._prepared
        attempts = self._attempts
        sends = [] if attempts is None else attempts.sends
        served = Served() if attempts is None else attempts.served
        replies = [each for each in sends if each.status is not None]
        begun = [each.first_event_at for each in sends if each.first_event_at is not None]
        return TurnRecord(
            wall=runner.tools.wall(),
            principal=ask.principal,
            transport=self._exchange.transport,
            outcome=outcome_of(ended),
            lane=ask.lane,
            root=runner.admission.workflows.root(ask) if lease is None else lease.root,
            worker=ask.worker,
            model=None if prepared is None else prepared.model,
            upstream=replies[-1].upstream if replies else None,
            account=served.account,
            move=served.move,
            reason=served.reason,
            attempts=len(sends),
            status=replies[-1].status if replies else None,
            refusal=ended.reason if isinstance(ended, Refused) else None,
            first_event_ms=(begun[-1] - asked_at) * 1000 if begun else None,
            total_ms=(trio.current_time() - asked_at) * 1000,
            usage=usage,
            bytes_up=0 if prepared is None else len(prepared.request.body or b""),
            bytes_down=sum(each.bytes_down for each in sends),
        )
