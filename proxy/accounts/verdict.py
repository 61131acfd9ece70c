"""Verdicts, pure: what a reply, a failure or an event shows about the account that it came from.

The public API documents its codes (https://platform.openai.com/docs/guides/error-codes). The
ChatGPT backend does not: a refusal of its quota has `usage_limit_reached` in `error.type`, without
a code and without Retry-After, and says when quota is back in `resets_at` (seconds since the epoch)
and `resets_in_seconds`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from proxy.accounts.usage import (
    UNSTATED_RESET_SECONDS,
    as_dict,
    as_number,
    as_text,
    usage_in_headers,
)
from proxy.accounts.view import ANY, SPENT_PERCENT, Family, Window
from proxy.headers import Headers, stated_retry_seconds
from proxy.responses.rawjson import UNREADABLE

QUOTA_RETRY_SECONDS: Final = 60.0
"""A 429 that asks for more patience than this is about quota, not about pace."""
LONGEST_HINT_SECONDS: Final = 5 * 3600.0
"""How far a hint is believed if no window is known: the length of the shortest window."""
NOT_INCLUDED_SECONDS: Final = 86_400.0
"""How long a model stays excluded by a plan, which rarely changes."""
_NOT_INCLUDED: Final = "usage_not_included"
_QUOTA_CODES: Final = frozenset({"usage_limit_reached", "insufficient_quota", _NOT_INCLUDED})
_ACCOUNT_CODES: Final = frozenset(
    {
        "access_terminated",
        "account_deactivated",
        "billing_not_active",
        "deactivated_workspace",
        "invalid_api_key",
        "ip_not_authorized",
        "organization_deactivated",
        "unsupported_country_region_territory",
    }
)
"""A 403 with one of these codes would answer every request of the account."""
_PACE_CODES: Final = frozenset({"rate_limit_exceeded", "slow_down"})
_SERVER_CODES: Final = frozenset(
    {"server_error", "internal_server_error", "server_is_overloaded", "overloaded_error"}
)


class Kind(StrEnum):
    """What an attempt showed about its account. NEUTRAL is a fault of the request. DENIED says that
    this account, but perhaps not another, may not ask for this."""

    SERVED = "served"
    NEUTRAL = "neutral"
    HICCUP = "hiccup"
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    QUOTA = "quota"
    UNAUTHORIZED = "unauthorized"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt showed. `family` is ANY unless the refusal names its model. `retry_at`, in
    seconds since the epoch, is when the provider said to come back."""

    kind: Kind
    family: Family = ANY
    retry_at: float | None = None
    plan: str | None = None


SERVED: Final = Verdict(kind=Kind.SERVED)
NEUTRAL: Final = Verdict(kind=Kind.NEUTRAL)
HICCUP: Final = Verdict(kind=Kind.HICCUP)
UNREACHABLE: Final = Verdict(kind=Kind.UNREACHABLE)


def judge_reply(
    status: int, headers: Headers, body: bytes, model: str | None, family: Family, now: float
) -> Verdict:
    """Return what a reply other than 2xx says about its account."""
    error = _error_in(body)
    codes = _codes(error)
    if status == 401 or (status == 403 and codes & _ACCOUNT_CODES):
        return Verdict(kind=Kind.UNAUTHORIZED)
    if status == 403 or (status == 404 and "model_not_found" in codes):
        return Verdict(kind=Kind.DENIED)
    if status >= 500 or status == 408:
        return HICCUP
    if status not in (402, 429):
        return NEUTRAL
    named = family if _names(error, model, family) else ANY
    retry = stated_retry_seconds(headers, now)
    full = [x for x in usage_in_headers(headers, now).windows if x.used_percent >= SPENT_PERCENT]
    patience = retry is not None and retry > QUOTA_RETRY_SECONDS
    if status == 402 or codes & _QUOTA_CODES or full or patience:
        return Verdict(
            kind=Kind.QUOTA,
            family=named,
            retry_at=_comes_back(error, codes, retry, full, now),
            plan=as_text(error.get("plan_type")),
        )
    retry_at = None if retry is None else now + retry
    return Verdict(kind=Kind.THROTTLED, family=named, retry_at=retry_at)


def judge_event(data: bytes, model: str | None, family: Family, now: float) -> Verdict:
    """Return what a stream's `error` or `response.failed` event says about its account."""
    error = _error_in(data)
    codes = _codes(error)
    named = family if _names(error, model, family) else ANY
    if codes & _QUOTA_CODES:
        return Verdict(
            kind=Kind.QUOTA, family=named, retry_at=_comes_back(error, codes, None, [], now)
        )
    if codes & _PACE_CODES:
        return Verdict(kind=Kind.THROTTLED, family=named)
    return HICCUP if codes & _SERVER_CODES else NEUTRAL


def _comes_back(
    error: Mapping[str, object],
    codes: AbstractSet[str | None],
    retry: float | None,
    full: Sequence[Window],
    now: float,
) -> float:
    """Return when quota is back: by the body, else by full windows, else by the header."""
    at = as_number(error.get("resets_at"))
    after = as_number(error.get("resets_in_seconds"))
    if at is not None and at > now:
        return at
    if after is not None:
        return now + after
    if full:
        return max(window.resets_at for window in full)
    if retry is not None:
        return now + retry
    return now + (NOT_INCLUDED_SECONDS if _NOT_INCLUDED in codes else UNSTATED_RESET_SECONDS)


def _names(error: Mapping[str, object], model: str | None, family: Family) -> bool:
    """Whether a refusal is about the requested model rather than the whole account."""
    if not model or not family:
        return False
    if error.get("model") in (model, family) or error.get("param") in (model, family):
        return True
    words = (as_text(error.get("message")) or "").lower().split()
    return any(word.strip("`'\".,:;()") in (model.lower(), family) for word in words)


def _codes(error: Mapping[str, object]) -> AbstractSet[str | None]:
    return {as_text(error.get("code")), as_text(error.get("type"))}


def _error_in(data: bytes) -> dict[str, Any]:
    """Return the error in a body, an `error` event or a `response.failed`; empty without one."""
    try:
        body = as_dict(msgspec.json.decode(data))
    except UNREADABLE:
        return {}
    response = as_dict(body.get("response"))
    for holder in (body.get("error"), response.get("error")):
        if isinstance(holder, dict):
            return holder
    return body if body.get("type") == "error" else {}
