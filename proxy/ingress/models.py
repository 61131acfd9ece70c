"""`GET /v1/models`, passed through: no turn, so no lease; bounded by the connection it came on."""

from typing import Final

import trio

from proxy.errors import UpstreamCut
from proxy.headers import downward, upward
from proxy.ingress import replies
from proxy.ingress.asgi import Receive, Scope, Send
from proxy.ingress.body import Body
from proxy.ingress.http import while_watching
from proxy.ingress.writer import send_whole
from proxy.outbox import Rejected
from proxy.runtime import Runtime
from proxy.upstream.base import Failure, UpstreamRequest

MODELS_SECONDS = 30.0
MODELS_BYTES = 4 * 2**20
_TOO_LARGE: Final = Failure(
    status=502,
    code="upstream_unusable",
    message="its list of models is larger than 4 MiB",
    retriable=False,
)


async def serve_models(runtime: Runtime, scope: Scope, receive: Receive, send: Send) -> None:
    body = Body(runtime.config.client.body_bytes, 0)
    body.discard()
    await while_watching(receive, body, _answer, runtime, scope, body, send)


async def _answer(runtime: Runtime, scope: Scope, body: Body, send: Send) -> None:
    answer = await _ask(runtime, scope)
    if isinstance(answer, Failure):
        form = replies.http_form(replies.failed(answer), close=False)
    else:
        form = replies.rejected_http(answer, runtime.wall())
    await send_whole(runtime, body, send, form)


async def _ask(runtime: Runtime, scope: Scope) -> Rejected | Failure:
    request = UpstreamRequest(
        method="GET",
        path="/models",
        query=scope["query_string"],
        headers=upward(scope["headers"], streamed=False),
        body=None,
        streamed=False,
    )
    found = bytearray()
    try:
        with trio.move_on_after(MODELS_SECONDS):
            async with runtime.upstream.open(request) as reply:
                if isinstance(reply, Failure):
                    return reply
                while chunk := await reply.read():
                    found += chunk
                    if len(found) > MODELS_BYTES:
                        return _TOO_LARGE
                return Rejected(
                    status=reply.status, headers=downward(reply.headers), body=bytes(found)
                )
    except UpstreamCut as error:
        return Failure(status=502, code="upstream_cut", message=str(error), retriable=False)
    return Failure(
        status=504, code="upstream_timeout", message="no answer in time", retriable=False
    )
