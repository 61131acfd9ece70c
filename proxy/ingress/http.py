"""One HTTP exchange: the decision from the headers, the body under the lease, the answer written.

Theory of operation
-------------------
`serve_responses` opens the exchange nursery with three parties: the turn; the one task that awaits
`receive`, from the first moment to the last, feeding the body and watching for the hang-up; and the
writer. hypercorn shields its socket writes, so the writer is the only one that a client which stops
reading can hold. A refused request's body is read on and dropped for a while, since a client that
is still sending would otherwise never see the answer.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from lifecycle import Cause, Lease, TurnScope
from proxy.config.settings import ClientSettings
from proxy.headers import find
from proxy.ingress.asgi import ClientRequest, Receive
from proxy.ingress.body import Body
from proxy.ingress.decoding import codings, decoded
from proxy.ingress.http_writer import Writer, send_no
from proxy.ingress.refusals import error_reply
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused
from proxy.responses.forwarding import upward
from proxy.responses.rawjson import UNREADABLE
from proxy.responses.sse import Noted
from proxy.runtime import Runtime
from proxy.turn.ended import Ended
from proxy.turn.exchange import Prepared
from proxy.turn.outbox import Outbox
from proxy.upstream.interface import UpstreamRequest


class _Head(msgspec.Struct):
    """What turnlane reads of a request body; the rest is only checked to be JSON."""

    stream: bool | None = None
    model: str | None = None
    previous_response_id: str | None = None


_head: Final = msgspec.json.Decoder(_Head)


class HttpExchange:
    """One POST as its turn sees it: the body to send, the outbox to fill, the scope to end."""

    transport = Transport.HTTP
    streams_only = False

    def __init__(
        self, client: ClientSettings, request: ClientRequest, body: Body, applied: tuple[str, ...]
    ) -> None:
        self._client = client
        self._request = request
        self._body = body
        self._applied = applied
        self.outbox = Outbox(client.outbox_bytes, client.stall_seconds)
        self.turn_scope = TurnScope()

    async def prepare(self, lease: Lease) -> Prepared | Refused:
        client = self._client
        body = await self._body.read(lease, client.body_silent_seconds, client.body_seconds)
        if not isinstance(body, Refused) and self._applied:
            body = await decoded(body, self._applied, lease, client.body_bytes)
        if isinstance(body, Refused):
            return body
        try:
            head = _head.decode(body)
        except UNREADABLE as error:
            problem = f"the body is not a valid JSON object: {error}"
            return Refused(reason=Reason.BAD_REQUEST, detail=problem)
        streamed = head.stream is True
        request = UpstreamRequest(
            query=self._request.query,
            headers=upward(self._request.headers, streamed=streamed),
            body=body,
            streamed=streamed,
        )
        return Prepared(
            request=request,
            model=head.model,
            previous_response_id=head.previous_response_id,
        )

    def observe(self, event: Noted) -> None:
        """Do nothing: an HTTP stream is not remembered."""

    def conclude(self, ended: Ended) -> Ended:
        return ended


async def serve_responses(runtime: Runtime, request: ClientRequest) -> None:
    """Serve `POST /v1/responses`."""
    client = runtime.config.client
    announced = _content_length(request)
    encoding = find(request.headers, b"content-encoding")
    applied = () if encoding is None else codings(encoding)
    if announced > client.body_bytes:
        applied = Refused(reason=Reason.TOO_LARGE)
    if isinstance(applied, Refused):
        await refuse(runtime, request, applied)
        return
    body = Body(client.body_bytes, announced, runtime.admission.memory)
    exchange = HttpExchange(client, request, body, applied)
    ask = request.identity.ask(announced)
    outbox, scope = exchange.outbox, exchange.turn_scope
    try:
        async with trio.open_nursery() as parties:
            parties.start_soon(runtime.turns.run, ask, exchange)
            parties.start_soon(watch, request.receive, body, parties.cancel_scope, scope)
            await Writer(request, body, outbox, client, runtime.wall).run()
            parties.cancel_scope.cancel()
    finally:
        body.discard()  # gives back what was held before the lease


async def watch(
    receive: Receive, body: Body, parties: trio.CancelScope, turn: TurnScope | None = None
) -> None:
    """Feed the body, then wait for the hang-up and cancel the turn and all that serves it. This is
    the only reader of `receive`."""
    while (message := await receive())["type"] != "http.disconnect":
        await body.feed(message.get("body", b""), more=message.get("more_body", False))
    if turn is not None:
        turn.cancel(Cause.CLIENT_GONE)
    parties.cancel()


async def refuse(runtime: Runtime, request: ClientRequest, refused: Refused) -> None:
    """Record and write a refusal that needs no turn, while the body is read on and dropped."""
    runtime.journal.refused(
        refused.reason,
        transport=request.transport,
        wall=runtime.wall(),
        principal=request.identity.principal,
    )
    no = error_reply(refused, request.audience, request.figures)
    client = runtime.config.client
    body = Body(client.body_bytes, 0)
    await while_watching(
        request.receive, body, send_no, request.send, body, no, client.discard_seconds
    )


async def while_watching(
    receive: Receive, body: Body, work: Callable[..., Awaitable[None]], *arguments: object
) -> None:
    """Do something that needs no turn; a hang-up cancels it."""
    async with trio.open_nursery() as parties:
        parties.start_soon(watch, receive, body, parties.cancel_scope)
        await work(*arguments)
        parties.cancel_scope.cancel()


def _content_length(request: ClientRequest) -> int:
    text = find(request.headers, b"content-length")
    return int(text) if text is not None and text.isdecimal() else 0
