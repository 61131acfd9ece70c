"""One HTTP exchange: the decision from the headers, the body under the lease, the answer written.

Theory of operation
-------------------
`respond` opens the exchange nursery with three parties: the turn; the one task that awaits
`receive`, from the first moment to the last, feeding the body and watching for the hang-up; and the
writer. hypercorn shields its socket writes, so the writer is the only one that a client which stops
reading can hold. A refused request's body is read on and dropped for a while, since a client that
is still sending would otherwise never see the answer.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec
import trio

from lifecycle import Ask, Lease
from proxy.exchange import Prepared
from proxy.headers import find, retry_after, upward
from proxy.ingress import replies
from proxy.ingress.ask import Identity, from_headers
from proxy.ingress.body import BadBody, Body, codings, decoded
from proxy.ingress.reasons import refusal
from proxy.outbox import Ended, Head, Outbox, Outcome, Taken
from proxy.runtime import Runtime
from proxy.shallow import UNREADABLE
from proxy.turns import run_turn
from proxy.upstream.base import UpstreamRequest
from proxy.upstream.sse import Event

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FILLER: Final = b'data: {"type":"keepalive"}\n\n'
"""A data event: Codex's idle timer does not count SSE comments."""

_GONE: Final = frozenset({Outcome.CLIENT_STALLED, Outcome.SHUTDOWN, Outcome.CLIENT_GONE})


class _Head(msgspec.Struct):
    """What turnlane reads of a request body; the rest is only checked to be JSON."""

    stream: bool | None = None
    model: str | None = None
    previous_response_id: str | None = None


_head: Final = msgspec.json.Decoder(_Head)


class HttpExchange:
    """The client of one POST, as its turn sees it."""

    transport = "http"
    streams_only = False

    def __init__(
        self, runtime: Runtime, scope: Scope, body: Body, applied: tuple[str, ...]
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._body = body
        self._applied = applied

    async def prepare(self, lease: Lease) -> Prepared | Ended:
        client = self._runtime.config.client
        body = await self._body.read(lease, client.body_silent_seconds, client.body_seconds)
        if not isinstance(body, BadBody) and self._applied:
            body = await decoded(body, self._applied, lease, client.body_bytes)
        if isinstance(body, BadBody):
            return Ended(outcome=Outcome.REFUSED, refusal=body.reason, detail=body.detail)
        try:
            head = _head.decode(body)
        except UNREADABLE as error:
            problem = f"the body is not a JSON object that turnlane can send: {error}"
            return Ended(outcome=Outcome.REFUSED, refusal="bad_request", detail=problem)
        streamed = head.stream is True
        request = UpstreamRequest(
            query=self._scope["query_string"],
            headers=upward(self._scope["headers"], streamed=streamed),
            body=body,
            streamed=streamed,
        )
        return Prepared(
            request=request,
            model=head.model,
            previous_response_id=head.previous_response_id,
        )

    def observe(self, event: Event) -> None:
        """Nothing is remembered of an HTTP stream."""

    def cause(self) -> Outcome:
        admission = self._runtime.admission
        over = admission.draining and admission.drain_seconds_left <= 0
        return Outcome.SHUTDOWN if over else Outcome.CLIENT_GONE

    def conclude(self, ended: Ended) -> Ended:
        return ended


async def serve_responses(runtime: Runtime, scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /v1/responses`."""
    identity = from_headers(scope["headers"], scope["principal"])
    client = runtime.config.client
    announced = _content_length(scope)
    applied = codings(find(scope["headers"], b"content-encoding"))
    if announced > client.body_bytes:
        applied = BadBody("too_large")
    if isinstance(applied, BadBody):
        body = Body(client.body_bytes, 0)
        runtime.journal.refused(
            applied.reason,
            transport="http",
            wall=runtime.wall(),
            principal=identity.principal,
        )
        no = refusal(
            runtime,
            applied.reason,
            codex=identity.codex,
            transport="http",
            detail=applied.detail,
        )
        await answer_early(runtime, body, receive, send, no)
        return
    body = Body(client.body_bytes, announced, runtime.admission.memory)
    exchange = HttpExchange(runtime, scope, body, applied)
    ask = identity.ask(announced)
    await respond(runtime, ask, exchange, body, identity, receive, send)


async def respond(
    runtime: Runtime,
    ask: Ask,
    exchange: HttpExchange,
    body: Body,
    identity: Identity,
    receive: Receive,
    send: Send,
) -> None:
    client = runtime.config.client
    outbox = Outbox(client.outbox_bytes, client.stall_seconds)
    try:
        async with trio.open_nursery() as parties:
            parties.start_soon(run_turn, runtime, ask, exchange, outbox)
            parties.start_soon(watch, receive, body, parties.cancel_scope)
            await _Writer(runtime, outbox, body, identity, send).run()
            parties.cancel_scope.cancel()
    finally:
        body.discard()  # what came early was held outside the lease


async def watch(receive: Receive, body: Body, scope: trio.CancelScope) -> None:
    """The only reader of `receive`: feed the body, then wait for the hang-up and cancel."""
    while (message := await receive())["type"] != "http.disconnect":
        await body.feed(message.get("body", b""), more=message.get("more_body", False))
    scope.cancel()


async def answer_early(
    runtime: Runtime, body: Body, receive: Receive, send: Send, no: replies.No
) -> None:
    """A no that needs no turn: written while the body is read on and dropped."""
    await while_watching(receive, body, send_no, runtime, body, send, no)


async def while_watching(
    receive: Receive, body: Body, work: Callable[..., Awaitable[None]], *arguments: object
) -> None:
    """Do something that needs no turn; a hang-up cancels it."""
    async with trio.open_nursery() as parties:
        parties.start_soon(watch, receive, body, parties.cancel_scope)
        await work(*arguments)
        parties.cancel_scope.cancel()


async def send_no(runtime: Runtime, body: Body, send: Send, no: replies.No) -> None:
    body.discard()
    unread = not body.complete.is_set()
    await send_whole(runtime, body, send, replies.http_form(no, close=unread))


async def send_whole(
    runtime: Runtime, body: Body, send: Send, form: tuple[int, replies.Headers, bytes]
) -> None:
    """Write a whole answer. hypercorn closes as soon as it has ended, and closing on unread bytes
    resets the connection, so the end waits until the client has sent its body or long enough."""
    status, headers, content = form
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with trio.move_on_after(runtime.config.client.discard_seconds):
        await body.complete.wait()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Writer:
    """From the outbox to the client."""

    def __init__(
        self, runtime: Runtime, outbox: Outbox, body: Body, identity: Identity, send: Send
    ) -> None:
        self._runtime = runtime
        self._outbox = outbox
        self._body = body
        self._identity = identity
        self._send = send
        self._streaming = False

    async def run(self) -> None:
        while True:
            with trio.move_on_after(self._runtime.config.client.filler_seconds) as patience:
                taken = await self._outbox.take()
            if patience.cancelled_caught:
                if self._streaming:
                    await self._write(FILLER)
                continue
            if taken.head is not None:
                await self._start(taken.head)
            await self._write(_joined(taken))
            if taken.ended is not None:
                await self._finish(taken.ended)
                return

    async def _start(self, head: Head) -> None:
        advice = retry_after(head.headers, head.status, self._runtime.wall())
        headers = [(name, value) for name, value in head.headers if name != b"retry-after"]
        if advice is not None:
            headers.append((b"retry-after", b"%d" % advice))
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        kind = find(head.headers, b"content-type") or "text/event-stream"
        self._streaming = kind.startswith("text/event-stream")
        self._started = True

    _started = False

    async def _write(self, content: bytes) -> None:
        if content:
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def _finish(self, ended: Ended) -> None:
        """The end of the body, or its visible absence: a cut stream has no last chunk."""
        if ended.outcome in _GONE:
            return
        if self._started:
            if ended.outcome is Outcome.DISPLACED and self._streaming:
                await self._write(self._displaced())
            elif ended.final is None and ended.outcome is not Outcome.COMPLETED:
                return
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if ended.rejected is not None:
            form = replies.rejected_http(ended.rejected, self._runtime.wall())
            await send_whole(self._runtime, self._body, self._send, form)
            return
        await send_no(self._runtime, self._body, self._send, self._no(ended))

    def _no(self, ended: Ended) -> replies.No:
        if ended.failure is not None:
            return replies.failed(ended.failure)
        if ended.outcome is Outcome.BROKEN:
            return replies.broken()
        reason = ended.refusal or "displaced"
        return refusal(
            self._runtime,
            reason,
            codex=self._identity.codex,
            transport="http",
            detail=ended.detail,
            retry_seconds=ended.retry_seconds,
            spent=ended.spent,
            asked=ended.asked,
        )

    def _displaced(self) -> bytes:
        no = refusal(self._runtime, "displaced", codex=True, transport="http")
        return replies.failed_event(no).raw


def _joined(taken: Taken) -> bytes:
    """What arrived together leaves together, the terminal event included."""
    parts = [event.raw for event in taken.events]
    if taken.ended is not None and taken.ended.final is not None:
        parts.append(taken.ended.final.raw)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _content_length(scope: Scope) -> int:
    text = find(scope["headers"], b"content-length")
    return int(text) if text is not None and text.isdecimal() else 0
