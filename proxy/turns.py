"""run_turn: admit, attempt, relay, conclude -- the story of one turn.

Theory of operation
-------------------
A turn runs in the nursery of `open_turn`, which owns its lease. It asks its exchange (HTTP or
WebSocket) for the request, sends it, and moves events from the upstream to the outbox. The first
event is the commit: before it another send may be tried, after it never.

The end has an order. The terminal event stays in the turn's hand; the nursery exits, the lease is
back, the exchange has concluded (a WebSocket has stored its transcript), the record is written;
then `outbox.end` lets the event go. All of that is synchronous, so a cancelled turn ends the same
way, and a client that answers at once finds its lane free.
"""

import logging

import trio

from lifecycle import AdmissionRefused, Ask, Waiting, open_turn
from proxy.errors import ClientStalled, UpstreamCut
from proxy.exchange import Exchange, Progress
from proxy.outbox import Ended, Outbox, Outcome
from proxy.record import TurnRecord
from proxy.relay import Relay, cut
from proxy.runtime import Runtime
from proxy.upstream.base import Failure, UpstreamRequest

logger = logging.getLogger("turnlane")


async def run_turn(
    runtime: Runtime, ask: Ask | Waiting, exchange: Exchange, outbox: Outbox
) -> None:
    """Run one turn to its end, whatever that is; the outbox and the journal hear of it."""
    progress = Progress(trio.current_time())
    try:
        async with open_turn(runtime.admission, ask) as turn:
            progress.lease = turn.lease
            turn.lease.client_stalled_seconds = outbox.stalled_seconds
            progress.ended = await _serve(runtime, exchange, outbox, progress)
    except AdmissionRefused as no:
        progress.ended = Ended(
            outcome=Outcome.REFUSED, refusal=no.refusal, retry_seconds=no.retry_seconds
        )
    except Exception:
        # Leaving from here it would cancel the writer, and the client would see no 500.
        logger.exception("a turn failed by a fault of ours")
        if progress.ended is None:  # what its client is owed is not lost by a fault behind it
            progress.ended = Ended(outcome=Outcome.BROKEN)
    finally:
        _conclude(runtime, ask.ask if isinstance(ask, Waiting) else ask, exchange, outbox, progress)


def _conclude(
    runtime: Runtime, ask: Ask, exchange: Exchange, outbox: Outbox, progress: Progress
) -> None:
    displaced = progress.lease is not None and progress.lease.displaced
    cause = Outcome.DISPLACED if displaced else exchange.cause()
    ended = exchange.conclude(progress.ended or Ended(outcome=cause))
    now = trio.current_time()
    runtime.journal.record(
        TurnRecord(
            wall=runtime.wall(),
            principal=ask.principal,
            transport=exchange.transport,
            outcome=ended.outcome,
            lane=ask.lane,
            root=runtime.admission.workflows.root(ask),
            worker=ask.worker,
            model=progress.model,
            upstream=progress.upstream,
            attempts=progress.attempts,
            status=progress.status,
            refusal=ended.refusal,
            first_event_ms=_milliseconds(progress.started, progress.committed_at),
            total_ms=(now - progress.started) * 1000,
            usage=ended.usage,
            bytes_up=progress.bytes_up,
            bytes_down=progress.bytes_down,
        )
    )
    outbox.end(ended)


def _milliseconds(started: float, then: float | None) -> float | None:
    return None if then is None else (then - started) * 1000


async def _serve(runtime: Runtime, exchange: Exchange, outbox: Outbox, progress: Progress) -> Ended:
    assert progress.lease is not None
    prepared = await exchange.prepare(progress.lease)
    if isinstance(prepared, Ended):
        return prepared
    progress.model = prepared.model
    progress.bytes_up = len(prepared.request.body or b"")
    try:
        ended = await _attempts(runtime, prepared.request, exchange, outbox, progress)
        if ended.outcome in (Outcome.CUT, Outcome.COMPLETED) and ended.final is None:
            await outbox.wait_taken()
    except ClientStalled:
        return progress.ended or Ended(outcome=Outcome.CLIENT_STALLED)
    return ended


async def _attempts(
    runtime: Runtime,
    request: UpstreamRequest,
    exchange: Exchange,
    outbox: Outbox,
    progress: Progress,
) -> Ended:
    """Each send is charged to the workflow; the first one was announced, so it always may be."""
    assert progress.lease is not None
    failure: Failure | None = None
    await trio.lowlevel.checkpoint_if_cancelled()  # cancelled by now, it sends nothing
    while progress.lease.sent() or failure is None:
        progress.attempts += 1
        answer = await _attempt(runtime, request, exchange, outbox, progress)
        if isinstance(answer, Ended):
            return answer
        failure = answer
        if not failure.retriable or progress.attempts >= runtime.config.upstream.sends:
            break
    return Ended(outcome=Outcome.UPSTREAM_FAILED, failure=failure)


async def _attempt(
    runtime: Runtime,
    request: UpstreamRequest,
    exchange: Exchange,
    outbox: Outbox,
    progress: Progress,
) -> Ended | Failure:
    settings = runtime.config.upstream
    seconds = settings.first_event_seconds if request.streamed else settings.whole_body_seconds
    with trio.move_on_after(seconds) as progress.patience:
        try:
            async with runtime.upstream.open(request) as reply:
                if isinstance(reply, Failure):
                    return reply
                progress.status, progress.upstream = reply.status, reply.name
                relay = Relay(reply, exchange, outbox, progress, settings.silence_seconds)
                return await relay.run(streamed=request.streamed)
        except UpstreamCut as error:
            return cut(progress, str(error))
    if progress.ended is not None:  # the time ran out while lingering
        return progress.ended
    if progress.committed_at is not None:
        return Ended(outcome=Outcome.CUT, detail="the upstream fell silent")
    return Failure(
        status=504,
        code="upstream_timeout",
        message=f"the upstream sent no event within {seconds:g} s",
        retriable=False,
    )
