"""Writer: what the outbox of an HTTP exchange holds, to its client; a cut answer has no end."""

from collections.abc import Callable
from typing import Final, assert_never

import trio

from proxy.config.settings import ClientSettings
from proxy.headers import find, retry_after
from proxy.ingress import replies
from proxy.ingress.asgi import ClientRequest, Send
from proxy.ingress.body import Body
from proxy.ingress.refusals import error_reply
from proxy.refusal import Refused
from proxy.turn.ended import (
    Broken,
    Cancelled,
    Cut,
    Delivered,
    Displaced,
    Ended,
    Finished,
    Head,
    Interrupted,
    Rejected,
)
from proxy.turn.outbox import Outbox, Taken, hand_on
from proxy.upstream.interface import Failure

FILLER: Final = b'data: {"type":"keepalive"}\n\n'
"""A data event: Codex's idle timer does not count SSE comments."""


async def send_no(send: Send, body: Body, no: replies.ErrorReply, discard_seconds: float) -> None:
    """Write an error that needs none of the client's body."""
    body.discard()
    unread = not body.complete.is_set()
    await send_whole(send, body, replies.http_form(no, close=unread), discard_seconds)


async def send_whole(send: Send, body: Body, form: replies.Form, discard_seconds: float) -> None:
    """Write a whole answer. hypercorn closes the connection as soon as the answer has ended, and
    closing with unread bytes resets it, which may cost the client the answer (RFC 9112 section
    9.6). So the end waits until the client has sent its body, for at most `discard_seconds`."""
    status, headers, content = form
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with trio.move_on_after(discard_seconds):
        await body.complete.wait()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Writer:
    """Write one outbox to the client of `request`. `wall` is seconds since the epoch."""

    def __init__(
        self,
        request: ClientRequest,
        body: Body,
        outbox: Outbox,
        client: ClientSettings,
        wall: Callable[[], float],
    ) -> None:
        self._request = request
        self._send = request.send
        self._connection = request.connection
        self._body = body
        self._outbox = outbox
        self._client = client
        self._wall = wall
        self._streaming = False
        self._started = False
        self._direct = False
        """Whether chunks are written to the connection itself and not through hypercorn."""

    async def run(self) -> None:
        while True:
            taken = await hand_on(
                self._outbox, self._hand_on, self._client.filler_seconds, self._fill
            )
            content = _joined(taken)
            if taken.head is not None:
                await self._start(taken.head, content)
            if taken.ended is not None:
                await self._finish(taken.ended, content)
                return
            await self._write(content)

    async def _hand_on(self, taken: Taken) -> bool:
        """Write what comes with neither the head nor the end, which is most of a stream. Return
        whether it was written."""
        if not self._direct or taken.ended is not None:
            return False
        await self._connection.send_chunk(_joined(taken))
        return True

    async def _fill(self) -> None:
        if self._streaming:
            await self._write(FILLER)

    async def _start(self, head: Head, content: bytes) -> None:
        advice = retry_after(head.headers, head.status, self._wall())
        headers = [(name, value) for name, value in head.headers if name != b"retry-after"]
        if advice is not None:
            headers.append((b"retry-after", b"%d" % advice))
        if content:
            self._connection.hold()
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        self._direct = self._connection.chunked
        kind = find(head.headers, b"content-type") or "text/event-stream"
        self._streaming = kind.startswith("text/event-stream")
        self._started = True

    async def _write(self, content: bytes) -> None:
        if content:
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def _finish(self, ended: Ended, content: bytes) -> None:
        if self._started:
            await self._end(ended, content)
            return
        discard_seconds = self._client.discard_seconds
        match ended:
            case Rejected():
                form = replies.whole_http(ended, self._wall())
                await send_whole(self._send, self._body, form, discard_seconds)
            case Refused() | Displaced() | Failure() | Cut() | Broken():
                await send_no(self._send, self._body, self._no(ended), discard_seconds)
            case Cancelled():
                pass
            case Finished() | Interrupted() | Delivered():
                raise AssertionError("the head goes before the end")
            case _:
                assert_never(ended)

    async def _end(self, ended: Ended, content: bytes) -> None:
        """Write the end of a body that has begun, or leave it out: without its last chunk a client
        knows that the answer is incomplete (RFC 9112 section 8)."""
        match ended:
            case Finished() | Interrupted() | Delivered():
                pass
            case Displaced() if self._streaming:
                content += replies.failed_event(self._no(ended)).raw
            case Rejected() | Refused() | Displaced() | Failure() | Cut() | Broken() | Cancelled():
                await self._write(content)
                return
            case _:
                assert_never(ended)
        if content:
            self._connection.hold()
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    def _no(self, ended: Refused | Displaced | Failure | Cut | Broken) -> replies.ErrorReply:
        return error_reply(ended, self._request.audience, self._request.figures)


def _joined(taken: Taken) -> bytes:
    """Return as one piece what arrived together, the terminal event included."""
    parts = [batch.raw for batch in taken.batches]
    if isinstance(taken.ended, Finished | Interrupted):
        parts.append(taken.ended.final.raw)
    return parts[0] if len(parts) == 1 else b"".join(parts)
