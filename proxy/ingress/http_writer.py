"""Writer: from the outbox of one HTTP exchange to its client, the end or its visible absence."""

from typing import Final

import trio

from proxy.headers import HeaderList, find, retry_after
from proxy.ingress import replies
from proxy.ingress.asgi import ClientConnection, Send
from proxy.ingress.body import Body
from proxy.ingress.identity import Identity
from proxy.ingress.refusals import refusal, refusal_of
from proxy.journal.outcome import Outcome, Transport
from proxy.runtime import Runtime
from proxy.turn.ended import Ended, Head
from proxy.turn.outbox import Outbox, Taken, hand_on

FILLER: Final = b'data: {"type":"keepalive"}\n\n'
"""A data event: Codex's idle timer does not count SSE comments."""

_GONE: Final = frozenset({Outcome.CLIENT_STALLED, Outcome.SHUTDOWN, Outcome.CLIENT_GONE})


async def send_no(runtime: Runtime, body: Body, send: Send, no: replies.ErrorReply) -> None:
    body.discard()
    unread = not body.complete.is_set()
    await send_whole(runtime, body, send, replies.http_form(no, close=unread))


async def send_whole(
    runtime: Runtime, body: Body, send: Send, form: tuple[int, HeaderList, bytes]
) -> None:
    """Write a whole answer. hypercorn closes as soon as it has ended, and closing on unread bytes
    resets the connection, so the end waits until the client has sent its body or long enough."""
    status, headers, content = form
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with trio.move_on_after(runtime.config.client.discard_seconds):
        await body.complete.wait()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Writer:
    """From the outbox to the client."""

    def __init__(
        self,
        runtime: Runtime,
        outbox: Outbox,
        body: Body,
        identity: Identity,
        send: Send,
        peer: ClientConnection,
    ) -> None:
        self._runtime = runtime
        self._outbox = outbox
        self._body = body
        self._identity = identity
        self._send = send
        self._peer = peer
        self._streaming = False
        self._started = False
        self._direct = False
        """Parts of the body are written beside hypercorn."""

    async def run(self) -> None:
        while True:
            seconds = self._runtime.config.client.filler_seconds
            taken = await hand_on(self._outbox, self._hand_on, seconds, self._fill)
            content = _joined(taken)
            if taken.head is not None:
                await self._start(taken.head, content)
            if taken.ended is not None:
                await self._finish(taken.ended, content)
                return
            await self._write(content)

    async def _hand_on(self, taken: Taken) -> bool:
        """Most of a stream: bytes behind a head, and not the end."""
        if not self._direct or taken.ended is not None:
            return False
        await self._peer.send_chunk(_joined(taken))
        return True

    async def _fill(self) -> None:
        if self._streaming:
            await self._write(FILLER)

    async def _start(self, head: Head, content: bytes) -> None:
        advice = retry_after(head.headers, head.status, self._runtime.wall())
        headers = [(name, value) for name, value in head.headers if name != b"retry-after"]
        if advice is not None:
            headers.append((b"retry-after", b"%d" % advice))
        if content:
            self._peer.hold()
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        self._direct = self._peer.chunked
        kind = find(head.headers, b"content-type") or "text/event-stream"
        self._streaming = kind.startswith("text/event-stream")
        self._started = True

    async def _write(self, content: bytes) -> None:
        if content:
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def _finish(self, ended: Ended, content: bytes) -> None:
        """The end of the body, or its visible absence: a cut stream has no last chunk."""
        whole = ended.final is not None or ended.outcome is Outcome.COMPLETED
        if self._started and ended.outcome is Outcome.DISPLACED and self._streaming:
            content, whole = content + self._displaced(), True
        if ended.outcome in _GONE or (self._started and not whole):
            await self._write(content)
            return
        if self._started:
            if content:
                self._peer.hold()
            end = {"type": "http.response.body", "body": content, "more_body": False}
            await self._send(end)
            return
        if ended.rejected is not None:
            form = replies.whole_http(ended.rejected, self._runtime.wall())
            await send_whole(self._runtime, self._body, self._send, form)
            return
        await send_no(self._runtime, self._body, self._send, self._no(ended))

    def _no(self, ended: Ended) -> replies.ErrorReply:
        if ended.failure is not None:
            return replies.failed(ended.failure)
        if ended.outcome is Outcome.BROKEN:
            return replies.broken()
        codex = self._identity.codex
        return refusal_of(self._runtime, ended, codex=codex, transport=Transport.HTTP)

    def _displaced(self) -> bytes:
        no = refusal(self._runtime, "displaced", codex=True, transport=Transport.HTTP)
        return replies.failed_event(no).raw


def _joined(taken: Taken) -> bytes:
    """What arrived together leaves together, the terminal event included."""
    parts = [batch.raw for batch in taken.batches]
    if taken.ended is not None and taken.ended.final is not None:
        parts.append(taken.ended.final.raw)
    return parts[0] if len(parts) == 1 else b"".join(parts)
