"""`GET /v1/models`, passed through. It is not a turn, so it has no lease."""

from dataclasses import replace
from typing import Final

import trio

from proxy.accounts.claim import AccountRequest, Claim, Shown
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.route import Withheld
from proxy.errors import UpstreamCut
from proxy.headers import HeaderList
from proxy.ingress import replies
from proxy.ingress.asgi import ClientRequest
from proxy.ingress.body import Body
from proxy.ingress.http import while_watching
from proxy.ingress.http_writer import send_whole
from proxy.ingress.refusals import Audience, error_reply
from proxy.refusal import Refused
from proxy.responses.forwarding import downward, for_account, upward
from proxy.runtime import Runtime
from proxy.turn.classify import judge, withheld, withheld_locally
from proxy.turn.ended import Rejected, WholeReply
from proxy.upstream.interface import Failure, UpstreamReply, UpstreamRequest

MODELS_SECONDS = 30.0
MODELS_BYTES = 4 * 2**20
_ASKED: Final = AccountRequest()
_TOO_LARGE: Final = Failure(
    status=502,
    code="upstream_unusable",
    message="its list of models is larger than 4 MiB",
    retriable=False,
)


async def serve_models(runtime: Runtime, request: ClientRequest) -> None:
    body = Body(runtime.config.client.body_bytes, 0)
    body.discard()
    await while_watching(request.receive, body, _answer, runtime, request, body)


async def _answer(runtime: Runtime, request: ClientRequest, body: Body) -> None:
    answer = await _ask(runtime, request)
    if isinstance(answer, WholeReply):
        form = replies.whole_http(answer, runtime.wall())
    else:
        if isinstance(answer, Refused):
            runtime.journal.refused(
                answer.reason,
                transport=request.transport,
                wall=runtime.wall(),
                principal=request.identity.principal,
            )
        # Codex shows the `invalid_prompt` form of a refusal in a turn only, so this one stays
        # plain.
        audience = Audience(codex=False, transport=request.transport)
        form = replies.http_form(error_reply(answer, audience, request.figures), close=False)
    await send_whole(request.send, body, form, runtime.config.client.discard_seconds)


async def _ask(runtime: Runtime, asked: ClientRequest) -> WholeReply | Failure | Refused:
    request = UpstreamRequest(
        method="GET",
        path="/models",
        query=asked.query,
        headers=upward(asked.headers, streamed=False),
        body=None,
        streamed=False,
    )
    if not len(runtime.accounts):
        return await _fetch(runtime, request)
    with runtime.accounts.claim(_ASKED) as claim:
        if isinstance(claim, Withheld):
            return withheld(claim, runtime.accounts.plan(), runtime.wall())
        return await _ask_account(runtime, request, claim)


async def _ask_account(
    runtime: Runtime, request: UpstreamRequest, claim: Claim
) -> WholeReply | Failure | Refused:
    """Ask with the account's credential, renewed once if it is refused, and note what that shows of
    the account. The list costs no quota, so having it does not show that there is any."""
    credential = await claim.headers()
    if isinstance(credential, CredentialFailure):
        return withheld_locally(credential)
    found = await _fetch(runtime, _dressed(request, claim, credential))
    if isinstance(found, Rejected) and found.status == 401:
        renewed = await claim.renew(credential)
        if not isinstance(renewed, CredentialFailure):
            found = await _fetch(runtime, _dressed(request, claim, renewed))
    if isinstance(found, Failure | Rejected):
        verdict = judge(found, None, _ASKED.family, runtime.wall())
        headers = found.headers if isinstance(found, Rejected) else ()
        claim.settle(Shown(verdict=verdict, headers=headers))
    else:
        claim.reached(found.headers)
    return found


def _dressed(request: UpstreamRequest, claim: Claim, credential: HeaderList) -> UpstreamRequest:
    headers = for_account(request.headers, credential, keep_turn_state=False)
    return replace(request, headers=headers, base_url=claim.account.base_url)


async def _fetch(runtime: Runtime, request: UpstreamRequest) -> WholeReply | Failure:
    """Send the request and read its whole reply."""
    try:
        with trio.move_on_after(MODELS_SECONDS):
            async with runtime.upstream.open(request) as reply:
                if isinstance(reply, Failure):
                    return reply
                return await _whole(reply)
    except UpstreamCut as error:
        return Failure(status=502, code="upstream_cut", message=str(error), retriable=False)
    return Failure(
        status=504, code="upstream_timeout", message="no answer in time", retriable=False
    )


async def _whole(reply: UpstreamReply) -> WholeReply | Failure:
    found = bytearray()
    while chunk := await reply.read():
        found += chunk
        if len(found) > MODELS_BYTES:
            return _TOO_LARGE
    kind = WholeReply if 200 <= reply.status < 300 else Rejected
    return kind(status=reply.status, headers=downward(reply.headers), body=bytes(found))
