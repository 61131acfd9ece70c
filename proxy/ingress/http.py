"""One HTTP exchange: the decision from the headers, the body under the lease, the answer written.

Theory of operation
-------------------
`respond` opens the exchange nursery with three parties: the turn; the one task that awaits
`receive`, from the first moment to the last, feeding the body and watching for the hang-up; and the
writer. hypercorn shields its socket writes, so the writer is the only one that a client which stops
reading can hold. A refused request's body is read on and dropped for a while, since a client that
is still sending would otherwise never see the answer.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from lifecycle import Ask, Lease
from proxy.headers import find
from proxy.ingress import replies
from proxy.ingress.asgi import ClientConnection, Receive, Scope, Send
from proxy.ingress.body import Body
from proxy.ingress.decoding import UnreadableBody, codings, decoded
from proxy.ingress.http_writer import Writer, send_no
from proxy.ingress.identity import Identity, from_headers
from proxy.ingress.refusals import refusal
from proxy.journal.outcome import Outcome, Transport
from proxy.responses.forwarding import upward
from proxy.responses.rawjson import UNREADABLE
from proxy.responses.sse import Noted
from proxy.runtime import Runtime
from proxy.turn.ended import Ended
from proxy.turn.exchange import Prepared
from proxy.turn.outbox import Outbox
from proxy.turn.run import run_turn
from proxy.upstream.interface import UpstreamRequest


class _Head(msgspec.Struct):
    """What turnlane reads of a request body; the rest is only checked to be JSON."""

    stream: bool | None = None
    model: str | None = None
    previous_response_id: str | None = None


_head: Final = msgspec.json.Decoder(_Head)


class HttpExchange:
    """The client of one POST, as its turn sees it."""

    transport = Transport.HTTP
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
        if not isinstance(body, UnreadableBody) and self._applied:
            body = await decoded(body, self._applied, lease, client.body_bytes)
        if isinstance(body, UnreadableBody):
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

    def observe(self, event: Noted) -> None:
        """Nothing is remembered of an HTTP stream."""

    def cause(self) -> Outcome:
        over = self._runtime.admission.drain_is_over
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
        applied = UnreadableBody("too_large")
    if isinstance(applied, UnreadableBody):
        body = Body(client.body_bytes, 0)
        runtime.journal.refused(
            applied.reason,
            transport=Transport.HTTP,
            wall=runtime.wall(),
            principal=identity.principal,
        )
        no = refusal(
            runtime,
            applied.reason,
            codex=identity.codex,
            transport=Transport.HTTP,
            detail=applied.detail,
        )
        await answer_early(runtime, body, receive, send, no)
        return
    body = Body(client.body_bytes, announced, runtime.admission.memory)
    exchange = HttpExchange(runtime, scope, body, applied)
    ask = identity.ask(announced)
    peer: ClientConnection = scope["state"]["peer"]
    await respond(runtime, ask, exchange, body, identity, receive, send, peer)


async def respond(
    runtime: Runtime,
    ask: Ask,
    exchange: HttpExchange,
    body: Body,
    identity: Identity,
    receive: Receive,
    send: Send,
    peer: ClientConnection,
) -> None:
    client = runtime.config.client
    outbox = Outbox(client.outbox_bytes, client.stall_seconds)
    try:
        async with trio.open_nursery() as parties:
            parties.start_soon(run_turn, runtime, ask, exchange, outbox)
            parties.start_soon(watch, receive, body, parties.cancel_scope)
            await Writer(runtime, outbox, body, identity, send, peer).run()
            parties.cancel_scope.cancel()
    finally:
        body.discard()  # what came early was held outside the lease


async def watch(receive: Receive, body: Body, scope: trio.CancelScope) -> None:
    """The only reader of `receive`: feed the body, then wait for the hang-up and cancel."""
    while (message := await receive())["type"] != "http.disconnect":
        await body.feed(message.get("body", b""), more=message.get("more_body", False))
    scope.cancel()


async def answer_early(
    runtime: Runtime, body: Body, receive: Receive, send: Send, no: replies.ErrorReply
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


def _content_length(scope: Scope) -> int:
    text = find(scope["headers"], b"content-length")
    return int(text) if text is not None and text.isdecimal() else 0
