"""Relay: from one upstream reply to the outbox, the terminal event held back."""

import math
from dataclasses import dataclass
from typing import Final

import trio

from proxy.errors import UpstreamCut
from proxy.headers import find
from proxy.responses.events import complete_usage
from proxy.responses.forwarding import downward
from proxy.responses.sse import RATE_LIMITS, Batch, Noted, Splitter, batch_of
from proxy.turn.ended import Answer, Cut, Delivered, Finished, Head, Rejected
from proxy.turn.exchange import Exchange, Progress
from proxy.turn.outbox import Outbox
from proxy.upstream.interface import Failure, UpstreamReply

REJECTION_BYTES = 2**20
"""An upstream's error body is read up to here; what a person or a client reads is far less."""
REJECTION_SECONDS = 10.0
"""Its end is waited for no longer: a client that could try again later is waiting, too."""
LINGER_SECONDS = 0.005
"""The end of a body nearly always comes with its last event; reading it keeps the connection."""
SLACK: Final = 1 / 256
"""Of the silence that an upstream may keep: so much sooner it may be taken to be over."""


def cut(progress: Progress, how: str) -> Answer:
    """Return what a broken stream comes to: before the commit a failure that may be tried again,
    after it a cut."""
    if progress.finished is not None:
        return progress.finished
    if progress.committed_at is not None:
        return Cut(how=how)
    return Failure(status=502, code="upstream_cut", message=how, retriable=True)


@dataclass(slots=True)
class Relay:
    """From one reply to the outbox."""

    reply: UpstreamReply
    exchange: Exchange
    outbox: Outbox
    progress: Progress
    silence_seconds: float

    async def run(self, *, streamed: bool) -> Answer:
        if not 200 <= self.reply.status < 300:
            return await self._reject()
        kind = find(self.reply.headers, b"content-type") or ""
        if kind.startswith("text/event-stream") or (streamed and not kind):
            return await self._stream()
        whole = not streamed or kind.startswith("application/json")
        if whole and not self.exchange.streams_only:
            return await self._whole()
        return Failure(
            status=502,
            code="upstream_unusable",
            message=f"the upstream answered with {kind or 'no content type'}, not a stream",
            retriable=False,
        )

    async def _stream(self) -> Answer:
        splitter = Splitter()
        early = b""  # comments before the first event commit to nothing
        while True:
            chunk = await self.reply.read()
            batch = batch_of(splitter.feed(chunk) if chunk else splitter.close())
            self.progress.bytes_down += len(chunk)
            if self.progress.committed_at is None:
                if early:
                    batch = batch._replace(raw=early + batch.raw)
                if not batch.data and batch.final is None:
                    early, batch = batch.raw, Batch(b"")
                else:
                    self._commit()
            if (finished := await self._forward(batch)) is not None:
                return finished
            if not chunk:
                return cut(self.progress, "the stream ended without a terminal event")
            if self.progress.committed_at is not None:
                self._still_patient()

    async def _forward(self, batch: Batch) -> Finished | None:
        for event in batch.noted:
            self.exchange.observe(event)
            if event.type == RATE_LIMITS and self.progress.serving is not None:
                self.progress.serving.learn_event(event.data)
        final = batch.final
        if final is None:
            if batch.raw:
                await self.outbox.put(batch)
            return None
        self.exchange.observe(Noted(final.type, final.data or b""))
        completed, usage = complete_usage(final)
        finished = self.progress.finished = Finished(final=completed, usage=usage)
        if batch.raw:
            await self.outbox.put(batch)
        await self._linger()
        return finished

    async def _whole(self) -> Delivered:
        while chunk := await self.reply.read():
            if self.progress.committed_at is None:
                self._commit()
            self._still_patient()
            self.progress.bytes_down += len(chunk)
            await self.outbox.put(Batch(chunk))
        if self.progress.committed_at is None:
            self._commit()
        return Delivered()

    async def _reject(self) -> Rejected:
        """The status is the answer: it stands, however much of its words arrives."""
        self.progress.patience.deadline = math.inf
        body = bytearray()
        with trio.move_on_after(REJECTION_SECONDS):
            try:
                while len(body) < REJECTION_BYTES and (chunk := await self.reply.read()):
                    body += chunk
            except UpstreamCut:
                pass
        return Rejected(
            status=self.reply.status, headers=downward(self.reply.headers), body=bytes(body)
        )

    async def _linger(self) -> None:
        with trio.move_on_after(LINGER_SECONDS):
            while await self.reply.read():
                pass

    def _commit(self) -> None:
        self.progress.committed_at = trio.current_time()
        if self.progress.serving is not None:
            self.progress.serving.answering()
        self._still_patient()
        self.outbox.begin(Head(status=self.reply.status, headers=downward(self.reply.headers)))

    def _still_patient(self) -> None:
        """Nearly exact: to move a deadline costs as much as all else that an event needs here."""
        patience = self.progress.patience
        until = trio.current_time() + self.silence_seconds
        if until - patience.deadline > self.silence_seconds * SLACK or patience.deadline > until:
            patience.deadline = until
