"""Send: one request to the upstream, and its reply into the outbox, the terminal event held back.

Theory of operation
-------------------
One cancel scope bounds a send, and this file alone moves its deadline. Until the first event it is
the time that the request was given; from then on the silence that an upstream may keep, counted
from the last bytes. The body of a rejection has a time of its own, and so have the bytes after a
terminal event: they nearly always come at once, and reading them keeps the connection.

What becomes known of a send is written into its `Sent` as it happens, so it is there for the
record of a turn that is cancelled half-way, when nothing is returned.
"""

import math
from dataclasses import dataclass
from typing import Final

import trio

from proxy.accounts.claim import Claim
from proxy.config.settings import UpstreamSettings
from proxy.errors import UpstreamCut
from proxy.headers import Headers, find
from proxy.responses.events import complete_usage
from proxy.responses.forwarding import downward
from proxy.responses.sse import RATE_LIMITS, Batch, Noted, Splitter, batch_of
from proxy.turn.ended import Answer, Cut, Delivered, Finished, Head, Rejected
from proxy.turn.exchange import Exchange
from proxy.upstream.interface import Failure, Upstream, UpstreamReply, UpstreamRequest

REJECTION_BYTES = 2**20
"""An upstream's error body is read up to here; what a person or a client reads is far less."""
REJECTION_SECONDS = 10.0
"""Its end is waited for no longer: a client that could try again later is waiting, too."""
LINGER_SECONDS = 0.005
"""How long to wait for the end of a body after its terminal event."""
SLACK: Final = 1 / 256
"""The part of the allowed silence by which it may end early; see `_heard`."""


@dataclass(slots=True, eq=False, kw_only=True)
class Sent:
    """One send and what came back so far; times are trio's. Written by this file alone.

    `finished` is set by the terminal event: from there the turn has ended, even if cancelled.
    """

    status: int | None = None
    upstream: str | None = None
    headers: Headers = ()
    first_event_at: float | None = None
    bytes_down: int = 0
    finished: Finished | None = None


async def send(
    upstream: Upstream,
    settings: UpstreamSettings,
    request: UpstreamRequest,
    exchange: Exchange,
    sent: Sent,
    claim: Claim | None = None,
) -> Answer:
    """Send `request`, relay its reply, and return what it came to; `sent` tells what is known so
    far, `claim` is the account that serves. Raises ClientStalled."""
    seconds = settings.first_event_seconds if request.streamed else settings.whole_body_seconds
    with trio.move_on_after(seconds) as patience:
        try:
            async with upstream.open(request) as reply:
                if isinstance(reply, Failure):
                    return reply
                relay = _Relay(reply, exchange, sent, claim, patience, settings)
                return await relay.run(streamed=request.streamed)
        except UpstreamCut as error:
            return _cut(sent, str(error))
    return _silent(sent, seconds)


def _cut(sent: Sent, how: str) -> Answer:
    """Return what a broken stream comes to: before the first event a failure that may be tried
    again, after it a cut, and nothing new after the terminal one."""
    if sent.finished is not None:
        return sent.finished
    if sent.first_event_at is not None:
        return Cut(how=how)
    return Failure(status=502, code="upstream_cut", message=how, retriable=True)


def _silent(sent: Sent, seconds: float) -> Answer:
    """Return what a send comes to whose time is over."""
    if sent.finished is not None:
        return sent.finished
    if sent.first_event_at is not None:
        return Cut(how="the upstream fell silent")
    return Failure(
        status=504,
        code="upstream_timeout",
        message=f"the upstream sent no event within {seconds:g} s",
        retriable=False,
    )


class _Relay:
    """From one reply to the outbox."""

    def __init__(
        self,
        reply: UpstreamReply,
        exchange: Exchange,
        sent: Sent,
        claim: Claim | None,
        patience: trio.CancelScope,
        settings: UpstreamSettings,
    ) -> None:
        self._reply = reply
        self._exchange = exchange
        self._outbox = exchange.outbox
        self._sent = sent
        self._claim = claim
        self._patience = patience
        self._silence_seconds = settings.silence_seconds
        sent.status, sent.upstream, sent.headers = reply.status, reply.name, reply.headers

    async def run(self, *, streamed: bool) -> Answer:
        if not 200 <= self._reply.status < 300:
            return await self._reject()
        kind = find(self._reply.headers, b"content-type") or ""
        if kind.startswith("text/event-stream") or (streamed and not kind):
            return await self._stream()
        whole = not streamed or kind.startswith("application/json")
        if whole and not self._exchange.streams_only:
            return await self._whole()
        return Failure(
            status=502,
            code="upstream_unusable",
            message=f"the upstream answered with {kind or 'no content type'}, not a stream",
            retriable=False,
        )

    async def _stream(self) -> Answer:
        sent, splitter = self._sent, Splitter()
        early = b""  # comments before the first event commit to nothing
        while True:
            chunk = await self._reply.read()
            batch = batch_of(splitter.feed(chunk) if chunk else splitter.close())
            sent.bytes_down += len(chunk)
            if sent.first_event_at is None:
                if early:
                    batch = batch._replace(raw=early + batch.raw)
                if not batch.data and batch.final is None:
                    early, batch = batch.raw, Batch(b"")
                else:
                    self._commit()
            if (finished := await self._forward(batch)) is not None:
                return finished
            if not chunk:
                return _cut(sent, "the stream ended without a terminal event")
            if sent.first_event_at is not None:
                self._heard()

    async def _forward(self, batch: Batch) -> Finished | None:
        for event in batch.noted:
            self._exchange.observe(event)
            if event.type == RATE_LIMITS and self._claim is not None:
                self._claim.learn_event(event.data)
        final = batch.final
        if final is None:
            if batch.raw:
                await self._outbox.put(batch)
            return None
        self._exchange.observe(Noted(final.type, final.data or b""))
        completed, usage = complete_usage(final)
        finished = self._sent.finished = Finished(final=completed, usage=usage)
        if batch.raw:
            await self._outbox.put(batch)
        await self._linger()
        return finished

    async def _whole(self) -> Delivered:
        while chunk := await self._reply.read():
            if self._sent.first_event_at is None:
                self._commit()
            self._heard()
            self._sent.bytes_down += len(chunk)
            await self._outbox.put(Batch(chunk))
        if self._sent.first_event_at is None:
            self._commit()
        return Delivered()

    async def _reject(self) -> Rejected:
        """The status is the answer, however much of its body arrives."""
        self._patience.deadline = math.inf
        body = bytearray()
        with trio.move_on_after(REJECTION_SECONDS):
            try:
                while len(body) < REJECTION_BYTES and (chunk := await self._reply.read()):
                    body += chunk
            except UpstreamCut:
                pass
        return Rejected(
            status=self._reply.status, headers=downward(self._reply.headers), body=bytes(body)
        )

    async def _linger(self) -> None:
        with trio.move_on_after(LINGER_SECONDS):
            while await self._reply.read():
                pass

    def _commit(self) -> None:
        """The first event is here: the answer is this one, and no other send is tried."""
        self._sent.first_event_at = trio.current_time()
        if self._claim is not None:
            self._claim.answering(self._reply.headers)
        self._heard()
        self._outbox.begin(Head(status=self._reply.status, headers=downward(self._reply.headers)))

    def _heard(self) -> None:
        """Grant another full silence, but move the deadline only where it would move by more than
        SLACK: moving it costs as much as everything else that an event needs here."""
        patience, silence = self._patience, self._silence_seconds
        until = trio.current_time() + silence
        if until - patience.deadline > silence * SLACK or patience.deadline > until:
            patience.deadline = until
