"""`GET /v1/models`, passed through: no turn, so no lease; bounded by the connection it came on."""

from dataclasses import replace
from typing import Final

import trio

from proxy.accounts.claim import Asked
from proxy.accounts.refresher import CredentialFailure
from proxy.accounts.routes import Withheld
from proxy.errors import UpstreamCut
from proxy.headers import downward, for_account, upward
from proxy.ingress import replies
from proxy.ingress.asgi import Receive, Scope, Send
from proxy.ingress.body import Body
from proxy.ingress.http import while_watching
from proxy.ingress.reasons import refusal
from proxy.ingress.writer import send_whole
from proxy.outbox import Ended, Rejected
from proxy.runtime import Runtime
from proxy.upstream.base import Failure, UpstreamRequest
from proxy.verdicts import withheld, withheld_locally

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
    if isinstance(answer, Rejected):
        form = replies.rejected_http(answer, runtime.wall())
    elif isinstance(answer, Failure):
        form = replies.http_form(replies.failed(answer), close=False)
    else:
        form = replies.http_form(_refused(runtime, scope, answer), close=False)
    await send_whole(runtime, body, send, form)


def _refused(runtime: Runtime, scope: Scope, ended: Ended) -> replies.No:
    """What Codex reads as final in a turn would be no more than a puzzle here."""
    reason = ended.refusal or ""
    runtime.journal.refused(
        reason, transport="http", wall=runtime.wall(), principal=scope["principal"]
    )
    return refusal(
        runtime,
        reason,
        codex=False,
        transport="http",
        detail=ended.detail,
        retry_seconds=ended.retry_seconds,
        spent=ended.spent,
    )


async def _ask(runtime: Runtime, scope: Scope) -> Rejected | Failure | Ended:
    request = UpstreamRequest(
        method="GET",
        path="/models",
        query=scope["query_string"],
        headers=upward(scope["headers"], streamed=False),
        body=None,
        streamed=False,
    )
    if len(runtime.accounts):
        with runtime.accounts.claim(Asked()) as claim:
            if isinstance(claim, Withheld):
                return withheld(claim, runtime.accounts.plan(), runtime.wall())
            credential = await claim.headers()
            if isinstance(credential, CredentialFailure):
                return withheld_locally(credential)
            headers = for_account(request.headers, credential, keep_turn_state=False)
            own = replace(request, headers=headers, base_url=claim.account.base_url)
            return await _fetch(runtime, own)
    return await _fetch(runtime, request)


async def _fetch(runtime: Runtime, request: UpstreamRequest) -> Rejected | Failure:
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
