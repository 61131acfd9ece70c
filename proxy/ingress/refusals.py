"""Refusals, pure: the one table of turnlane's own refusals, with status, code, words and advice.

Codex drops the words of a plain 4xx, so a final no reaches it as 400 `invalid_prompt`, the only
form whose message it shows to its user or, for a sub-agent, to the parent model. The true reason
is in the headers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, assert_never

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.ingress import replies
from proxy.ingress.replies import INVALID, SERVER, ErrorReply
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused, SpentQuota
from proxy.turn.ended import Broken, Cut, Displaced
from proxy.upstream.interface import Failure

WAITABLE_SECONDS: Final = 75
"""The longest advice that Codex was seen to wait out; what takes longer is final."""
_LIMITED: Final = "rate_limit_error"
_DETAIL_CHARACTERS: Final = 500  # a detail may quote the client, at any length


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    status: int
    code: str
    message: str
    type: str = INVALID
    retry: int | None = None
    """Seconds; what a refusal itself says goes before."""
    final: bool = False
    waitable: bool = False
    """Final unless the refusal says that it lifts within WAITABLE_SECONDS."""
    advises_late: bool = False
    """Says when it lifts even where that makes it final."""
    codex_over_http: int | None = None
    """Status for Codex over HTTP, where it waits out a 503 up to 30 times and a 429 only 5."""
    codex_knows_code: bool = False
    """Codex over HTTP reads this code even where it is final, and shows when quota comes back."""


def _busy(message: str) -> _Rule:
    return _Rule(status=503, code="server_busy", type=SERVER, retry=2, message=message)


def _budget(message: str) -> _Rule:
    """Return the rule of what comes back as the window rolls."""
    return _Rule(
        status=429,
        code="workflow_budget_exhausted",
        type=_LIMITED,
        waitable=True,
        message=message,
    )


_LOCAL: Final = "turnlane refused this locally and asked no provider: "
_AFTER_ALL: Final = "turnlane refused this locally, after asking providers: "

_RULES: Final = MappingProxyType(
    {
        Reason.TURNS_AT_CAPACITY: _busy("all {turns} turns are in use; retry when a stream ends."),
        Reason.LANES_AT_CAPACITY: _busy(
            "all {lanes} lanes are in use ({kept} are reserved for interactive turns); retry when "
            "the running turn of a conversation ends."
        ),
        Reason.LANE_BUSY: _busy(
            "another turn of this conversation is still running (limit 1) and did not finish "
            "within {settle:g} s; retry once it ends."
        ),
        Reason.MEMORY_AT_CAPACITY: _busy(
            "the {memory} MiB for bodies and transcripts are in use; retry when other turns end."
        ),
        Reason.WEBSOCKETS_AT_CAPACITY: _busy(
            "all {websockets} WebSockets are in use; retry when a client closes one."
        ),
        Reason.DRAINING: _busy(
            "turnlane is shutting down and accepts no new turns; retry in case it restarts."
        ),
        Reason.DISPLACED: _Rule(
            status=409,
            code="continued_elsewhere",
            final=True,
            message="this turn was continued on another connection.",
        ),
        Reason.WORKFLOW_CONCURRENCY_EXHAUSTED: _Rule(
            status=429,
            code="queue_capacity_exceeded",
            type=_LIMITED,
            retry=5,
            codex_over_http=503,
            message="this task may run {w_turns} turns at once ({w_kept} reserved for the "
            "conversation itself) and has none left for this one; retry when a sub-agent's stream "
            "ends.",
        ),
        Reason.WORKFLOW_SENDS_EXHAUSTED: _budget(
            "this task has used up its sends to providers ({w_sends} by sub-agents, {w_all} in "
            "all, per {w_minutes:g} min); they come back as that time passes."
        ),
        Reason.WORKFLOW_CHILDREN_EXHAUSTED: _budget(
            "this task has had {w_children} different sub-agents in {w_minutes:g} min, its limit. "
            "Those sub-agents may go on, and a new one may start as that time passes."
        ),
        Reason.WORKFLOW_TRACKING_EXHAUSTED: _Rule(
            status=503,
            code="server_busy",
            type=SERVER,
            retry=5,
            message="{w_roots} tasks are tracked, the limit, and none can be dropped; retry when "
            "one is idle and within its budget.",
        ),
        Reason.ACCOUNTS_SPENT: _Rule(
            status=429,
            code="usage_limit_reached",
            type="usage_limit_reached",
            waitable=True,
            codex_over_http=503,
            codex_knows_code=True,
            message="{detail}; {comes_back}.",
        ),
        Reason.ACCOUNTS_WITHHELD: _Rule(
            status=503,
            code="server_busy",
            type=SERVER,
            waitable=True,
            advises_late=True,
            message="no account can serve this now: {detail}.",
        ),
        Reason.UNAUTHORIZED: _Rule(status=401, code="unauthorized", message="{detail}"),
        Reason.NO_CREDENTIAL: _Rule(
            status=401,
            code="no_credential",
            message="this request has a turnlane key but no credential for a provider, and no "
            "account is configured to serve it.",
        ),
        Reason.FOREIGN_ORIGIN: _Rule(status=403, code="foreign_origin", message="{detail}"),
        Reason.NOT_FOUND: _Rule(status=404, code="not_found", message="{detail}"),
        Reason.METHOD_NOT_ALLOWED: _Rule(status=405, code="method_not_allowed", message="{detail}"),
        Reason.BODY_TIMEOUT: _Rule(
            status=408,
            code="body_timeout",
            message="the body was silent for {silent:g} s, or not complete after {body:g} s.",
        ),
        Reason.TOO_LARGE: _Rule(
            status=413,
            code="too_large",
            final=True,
            message="the body is larger than {body_mib} MiB, before or after decompression.",
        ),
        Reason.UNSUPPORTED_ENCODING: _Rule(
            status=415, code="unsupported_encoding", final=True, message="{detail}"
        ),
        Reason.UNSUPPORTED_STREAM_ID: _Rule(
            status=400, code="unsupported_stream_id", final=True, message="{detail}"
        ),
        Reason.UNSUPPORTED_FRAME: _Rule(
            status=400, code="unsupported_frame", final=True, message="{detail}"
        ),
        Reason.BAD_REQUEST: _Rule(status=400, code="bad_request", final=True, message="{detail}"),
        # Codex answers this code by sending everything again, so it is never disguised.
        Reason.PREVIOUS_RESPONSE_NOT_FOUND: _Rule(
            status=400,
            code="previous_response_not_found",
            message="response {detail} is unknown where this turn is sent; send the whole input.",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who reads a refusal: Codex has its own way with statuses, which differs by transport."""

    codex: bool
    transport: Transport


Figures = Mapping[str, float]
"""The numbers that messages name; see `figures`."""


def figures(limits: Limits, client: ClientSettings) -> Figures:
    """Return the numbers that messages name, from the configuration."""
    workflow = limits.workflow
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


def error_reply(
    ended: Refused | Displaced | Failure | Cut | Broken, audience: Audience, figures: Figures
) -> ErrorReply:
    """Return what a client is told about an ending that it did not cause, as it understands it."""
    match ended:
        case Refused():
            return _refusal(ended, audience, figures)
        case Displaced():
            return _refusal(Refused(reason=Reason.DISPLACED), audience, figures)
        case Failure():
            return replies.failed(ended)
        case Cut():
            return replies.cut(ended.how)
        case Broken():
            return replies.broken()
        case _:
            assert_never(ended)


def _refusal(refused: Refused, audience: Audience, figures: Figures) -> ErrorReply:
    rule, seconds = _RULES[refused.reason], refused.retry_seconds
    final = rule.final or (rule.waitable and (seconds is None or seconds > WAITABLE_SECONDS))
    retry = rule.retry if seconds is None else max(1, math.ceil(seconds))
    if final and not rule.advises_late:
        retry = None
    no = ErrorReply(
        status=rule.status,
        type=rule.type,
        code=rule.code,
        message=(_AFTER_ALL if refused.asked else _LOCAL)
        + rule.message.format(
            **figures,
            detail=refused.detail[:_DETAIL_CHARACTERS],
            comes_back=_comes_back(refused.spent),
        ),
        retry_after=retry,
        reason=refused.reason,
        more=_more(refused.spent),
    )
    over_http = audience.transport is Transport.HTTP
    if audience.codex and final:
        if over_http and rule.codex_knows_code:
            return no
        return replace(no, status=400, type=INVALID, code="invalid_prompt", retry_after=None)
    if audience.codex and over_http and rule.codex_over_http is not None:
        return replace(no, status=rule.codex_over_http)
    return no


def _comes_back(spent: SpentQuota | None) -> str:
    if spent is None or spent.resets_at is None:
        return "no provider said when quota comes back"
    when = datetime.fromtimestamp(spent.resets_at, UTC)
    return f"the first account has quota again at {when:%Y-%m-%d %H:%M:%S} UTC"


def _more(spent: SpentQuota | None) -> dict[str, object]:
    if spent is None:
        return {}
    resets_at = None if spent.resets_at is None else math.ceil(spent.resets_at)
    return {"plan_type": spent.plan_type, "resets_at": resets_at}
