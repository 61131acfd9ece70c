"""run_turn: admit, attempt, relay, conclude -- the story of one turn.

Theory of operation
-------------------
A turn runs in the nursery of `open_turn`, which owns its lease. It asks its exchange (HTTP or
WebSocket) for the request and has it sent (`proxy.turn.attempts`), which moves events from the
upstream to the outbox. The first event is the commit: before it another send may be tried, after it
never.

The end has an order. The terminal event stays in the turn's hand; the nursery exits, the lease is
back, the exchange has concluded (a WebSocket has stored its transcript), the record is written;
then `outbox.end` lets the event go. All of that is synchronous, so a cancelled turn ends the same
way, and a client that answers at once finds its lane free.
"""

import logging

import trio

from lifecycle import AdmissionRefused, Ask, Waiting, open_turn
from proxy.errors import ClientStalled
from proxy.journal.record import TurnRecord
from proxy.refusal import Refused, by_admission
from proxy.runtime import Runtime
from proxy.turn.attempts import Attempts
from proxy.turn.ended import (
    Broken,
    Cancelled,
    Cause,
    Cut,
    Delivered,
    Displaced,
    Ended,
    outcome_of,
    usage_of,
)
from proxy.turn.exchange import Exchange, Progress
from proxy.turn.outbox import Outbox

logger = logging.getLogger(__name__)


async def run_turn(
    runtime: Runtime, ask: Ask | Waiting, exchange: Exchange, outbox: Outbox
) -> None:
    """Run one turn to its end, whatever that is; the outbox and the journal hear of it."""
    progress = Progress(trio.current_time())
    ended: Ended | None = None
    who = ask.ask if isinstance(ask, Waiting) else ask
    try:
        async with open_turn(runtime.admission, ask) as turn:
            progress.lease = turn.lease
            turn.lease.client_stalled_seconds = outbox.stalled_seconds
            ended = await _serve(runtime, who, exchange, outbox, progress)
    except AdmissionRefused as no:
        ended = by_admission(no)
    except Exception:
        # Leaving from here it would cancel the writer, and the client would see no 500.
        logger.exception("a turn failed by a fault of ours")
        if ended is None:  # what its client is owed is not lost by a fault after the end
            ended = progress.finished or Broken()
    finally:
        _conclude(runtime, who, exchange, outbox, progress, ended)


def _conclude(
    runtime: Runtime,
    ask: Ask,
    exchange: Exchange,
    outbox: Outbox,
    progress: Progress,
    ended: Ended | None,
) -> None:
    lease = progress.lease
    displaced = lease is not None and lease.displaced
    ended = ended or progress.finished
    if ended is None:
        ended = Displaced() if displaced else Cancelled(cause=exchange.cause())
    usage = usage_of(ended)
    ended = exchange.conclude(ended)
    now = trio.current_time()
    runtime.journal.record(
        TurnRecord(
            wall=runtime.wall(),
            principal=ask.principal,
            transport=exchange.transport,
            outcome=outcome_of(ended),
            lane=ask.lane,
            root=runtime.admission.workflows.root(ask) if lease is None else lease.root,
            worker=ask.worker,
            model=progress.model,
            upstream=progress.upstream,
            account=progress.account,
            move=progress.move,
            reason=progress.reason,
            attempts=progress.attempts,
            status=progress.status,
            refusal=ended.reason if isinstance(ended, Refused) else None,
            first_event_ms=_milliseconds(progress.started, progress.committed_at),
            total_ms=(now - progress.started) * 1000,
            usage=usage,
            bytes_up=progress.bytes_up,
            bytes_down=progress.bytes_down,
        )
    )
    outbox.end(ended)


def _milliseconds(started: float, then: float | None) -> float | None:
    return None if then is None else (then - started) * 1000


async def _serve(
    runtime: Runtime, ask: Ask, exchange: Exchange, outbox: Outbox, progress: Progress
) -> Ended:
    assert progress.lease is not None
    prepared = await exchange.prepare(progress.lease)
    if isinstance(prepared, Refused):
        return prepared
    progress.model = prepared.model
    progress.bytes_up = len(prepared.request.body or b"")
    attempts = Attempts(runtime, ask, prepared, exchange, outbox, progress)
    try:
        ended = await attempts.run()
        if isinstance(ended, Cut | Delivered):
            await outbox.wait_taken()
    except ClientStalled:
        return progress.finished or Cancelled(cause=Cause.CLIENT_STALLED)
    return ended
