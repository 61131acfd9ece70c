"""Reasons: the one table of why turnlane itself says no, with status, code, words and advice.

Codex drops the words of a plain 4xx, so a final no reaches it as 400 `invalid_prompt`, the only
form whose message it shows to its user or, for a sub-agent, to the parent model. The true reason
stands in the headers.

deny: refuse a WebSocket before it is one, with a plain HTTP response.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from proxy.ingress import replies
from proxy.ingress.asgi import Scope, Send
from proxy.ingress.auth import NOBODY
from proxy.ingress.identity import from_headers
from proxy.ingress.replies import INVALID, SERVER, ErrorReply
from proxy.journal.outcome import Transport
from proxy.runtime import Runtime
from proxy.turn.ended import Ended, SpentQuota

WAITABLE_SECONDS: Final = 75
"""The longest advice that Codex was seen to wait out; what takes longer is final."""
_LIMITED: Final = "rate_limit_error"
_DETAIL_CHARACTERS: Final = 500  # a detail may quote the client, at any length
_OF_ACCOUNTS: Final = frozenset({"accounts_spent", "accounts_withheld"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    status: int
    code: str
    message: str
    type: str = INVALID
    retry: int | None = None
    final: bool = False
    codex_over_http: int | None = None
    """Status for Codex over HTTP, where it waits out a 503 up to 30 times and a 429 only 5."""


def _busy(message: str) -> _Rule:
    return _Rule(status=503, code="server_busy", type=SERVER, retry=2, message=message)


def _budget(message: str) -> _Rule:
    """Retried when the window rolls far enough soon; else final."""
    return _Rule(status=429, code="workflow_budget_exhausted", type=_LIMITED, message=message)


_LOCAL: Final = "turnlane refused this locally and asked no provider: "
_AFTER_ALL: Final = "turnlane refused this locally, after what providers said: "

_RULES: Final = MappingProxyType(
    {
        "turns_at_capacity": _busy("all {turns} turns are taken; one is free when a stream ends."),
        "lanes_at_capacity": _busy(
            "all {lanes} lanes are taken ({kept} of them are kept for interactive turns); one is "
            "free when a conversation's running turn ends."
        ),
        "lane_busy": _busy(
            "this conversation has a turn running (1 at once), and it did not end within "
            "{settle:g} s; the lane is free when that turn ends."
        ),
        "memory_at_capacity": _busy(
            "the {memory} MiB for bodies and transcripts are taken; they are free as turns end."
        ),
        "websockets_at_capacity": _busy(
            "all {websockets} WebSockets are open; one is free when a client closes its own."
        ),
        "draining": _busy(
            "turnlane is shutting down and admits nothing new; a new one may follow."
        ),
        "displaced": _Rule(
            status=409,
            code="continued_elsewhere",
            final=True,
            message="this turn was continued on another connection.",
        ),
        "workflow_concurrency_exhausted": _Rule(
            status=429,
            code="queue_capacity_exceeded",
            type=_LIMITED,
            retry=5,
            codex_over_http=503,
            message="this task may run {w_turns} turns at once, {w_kept} of them kept for the "
            "conversation itself, and has none left for this one; one is free when a sub-agent's "
            "stream ends.",
        ),
        "workflow_sends_exhausted": _budget(
            "this task has used up its sends to providers: {w_sends} by sub-agents, {w_all} in "
            "all, in {w_minutes:g} min; they come back as that time passes."
        ),
        "workflow_children_exhausted": _budget(
            "this task has had {w_children} different sub-agents in {w_minutes:g} min; a further "
            "one may come as that time passes. Sub-agents that it has had may go on."
        ),
        "workflow_tracking_exhausted": _Rule(
            status=503,
            code="server_busy",
            type=SERVER,
            retry=5,
            message="{w_roots} tasks are tracked, and none of them can be forgotten now; one can "
            "when it is idle and within its budget.",
        ),
        "accounts_spent": _Rule(
            status=429,
            code="usage_limit_reached",
            type="usage_limit_reached",
            codex_over_http=503,
            message="{detail}; {comes_back}.",
        ),
        "accounts_withheld": _Rule(
            status=503,
            code="server_busy",
            type=SERVER,
            message="no account can serve this now: {detail}.",
        ),
        "unauthorized": _Rule(status=401, code="unauthorized", message="{detail}"),
        "no_credential": _Rule(
            status=401,
            code="no_credential",
            message="this request brings a turnlane key but no credential for a provider, and no "
            "account is configured to serve it.",
        ),
        "foreign_origin": _Rule(status=403, code="foreign_origin", message="{detail}"),
        "not_found": _Rule(status=404, code="not_found", message="{detail}"),
        "method_not_allowed": _Rule(status=405, code="method_not_allowed", message="{detail}"),
        "body_timeout": _Rule(
            status=408,
            code="body_timeout",
            message="the body was silent for {silent:g} s or not complete after {body:g} s.",
        ),
        "too_large": _Rule(
            status=413,
            code="too_large",
            final=True,
            message="the body is larger than {body_mib} MiB (decompressed likewise).",
        ),
        "unsupported_encoding": _Rule(
            status=415, code="unsupported_encoding", final=True, message="{detail}"
        ),
        "unsupported_stream_id": _Rule(
            status=400, code="unsupported_stream_id", final=True, message="{detail}"
        ),
        "unsupported_frame": _Rule(
            status=400, code="unsupported_frame", final=True, message="{detail}"
        ),
        "bad_request": _Rule(status=400, code="bad_request", final=True, message="{detail}"),
        # Codex answers this code by sending everything again, so it is never disguised.
        "previous_response_not_found": _Rule(
            status=400,
            code="previous_response_not_found",
            message="response {detail} is not known where this turn goes; send the whole input.",
        ),
    }
)


def refusal(
    runtime: Runtime,
    reason: str,
    *,
    codex: bool,
    transport: Transport,
    detail: str = "",
    retry_seconds: float | None = None,
    spent: SpentQuota | None = None,
    asked: bool = False,
) -> ErrorReply:
    """Our own no, as this client understands it. `retry_seconds`: what a workflow's window, or the
    accounts, say. `asked`: a provider was asked before."""
    rule = _RULES[reason]
    retry, final = rule.retry, rule.final
    if reason == "draining":
        retry = max(1, math.ceil(runtime.admission.away_seconds))
    elif rule.code == "workflow_budget_exhausted":
        final = retry_seconds is None or retry_seconds > WAITABLE_SECONDS
        retry = None if final else max(1, math.ceil(retry_seconds or 0))
    elif reason in _OF_ACCOUNTS:
        final = retry_seconds is None or retry_seconds > WAITABLE_SECONDS
        if retry_seconds is not None and not (final and reason == "accounts_spent"):
            retry = max(1, math.ceil(retry_seconds))
    no = ErrorReply(
        status=rule.status,
        type=rule.type,
        code=rule.code,
        message=(_AFTER_ALL if asked else _LOCAL)
        + rule.message.format(
            **_figures(runtime), detail=detail[:_DETAIL_CHARACTERS], comes_back=_comes_back(spent)
        ),
        retry_after=retry,
        reason=reason,
        more=_more(spent),
    )
    if codex and final and reason == "accounts_spent" and transport is Transport.HTTP:
        return no  # Codex reads this code, and shows when the quota comes back
    if codex and final:
        return replace(no, status=400, type=INVALID, code="invalid_prompt", retry_after=None)
    if codex and rule.codex_over_http is not None and transport is Transport.HTTP:
        return replace(no, status=rule.codex_over_http)
    return no


def refusal_of(runtime: Runtime, ended: Ended, *, codex: bool, transport: Transport) -> ErrorReply:
    """Return our own no that ended a turn; one that names no reason was displaced."""
    return refusal(
        runtime,
        ended.refusal or "displaced",
        codex=codex,
        transport=transport,
        detail=ended.detail,
        retry_seconds=ended.retry_seconds,
        spent=ended.spent,
        asked=ended.asked,
    )


def _comes_back(spent: SpentQuota | None) -> str:
    if spent is None or spent.resets_at is None:
        return "none of them said when quota comes back"
    when = datetime.fromtimestamp(spent.resets_at, UTC)
    return f"the first has quota again at {when:%Y-%m-%d %H:%M:%S} UTC"


def _more(spent: SpentQuota | None) -> dict[str, object]:
    if spent is None:
        return {}
    resets_at = None if spent.resets_at is None else math.ceil(spent.resets_at)
    return {"plan_type": spent.plan_type, "resets_at": resets_at}


def _figures(runtime: Runtime) -> dict[str, float]:
    """The numbers that messages name."""
    limits, client, workflow = (
        runtime.config.limits,
        runtime.config.client,
        runtime.config.limits.workflow,
    )
    return {
        "turns": limits.turns,
        "lanes": limits.lanes,
        "kept": limits.lanes_kept,
        "settle": limits.settle_seconds,
        "memory": limits.memory_bytes // 2**20,
        "websockets": limits.websockets,
        "silent": client.body_silent_seconds,
        "body": client.body_seconds,
        "body_mib": client.body_bytes // 2**20,
        "w_turns": workflow.turns,
        "w_kept": workflow.kept,
        "w_children": workflow.children,
        "w_sends": workflow.sends,
        "w_all": workflow.sends + workflow.sends_kept,
        "w_minutes": workflow.window_seconds / 60,
        "w_roots": workflow.roots,
    }


async def deny(runtime: Runtime, scope: Scope, send: Send, reason: str, detail: str = "") -> None:
    """Answer the handshake with a plain HTTP response."""
    identity = from_headers(scope["headers"], scope.get("principal", NOBODY))
    runtime.journal.refused(
        reason, transport=Transport.WEBSOCKET, wall=runtime.wall(), principal=identity.principal
    )
    no = refusal(
        runtime, reason, codex=identity.codex, transport=Transport.WEBSOCKET, detail=detail
    )
    status, headers, body = replies.http_form(no, close=True)
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
