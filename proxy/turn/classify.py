"""Classify, pure: what the answer to one send says of its account and of what to try next, and what
a turn is told when no account may be asked."""

from typing import Final, assert_never

import msgspec

from proxy.accounts.claim import Shown
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.route import Withheld
from proxy.accounts.verdict import (
    HICCUP,
    NEUTRAL,
    SERVED,
    UNREACHABLE,
    Verdict,
    judge_event,
    judge_reply,
)
from proxy.accounts.view import Family
from proxy.headers import Headers
from proxy.journal.record import Outcome
from proxy.refusal import Reason, Refused, SpentQuota
from proxy.responses.events import response_id
from proxy.responses.rawjson import UNREADABLE
from proxy.turn.ended import Answer, Cut, Delivered, Finished, Rejected, outcome_of
from proxy.upstream.interface import Failure

_ENCRYPTED: Final = "invalid_encrypted_content"
_LATE: Final = frozenset({"upstream_cut", "upstream_timeout"})


class _Error(msgspec.Struct):
    code: str | None = None


class _Body(msgspec.Struct):
    error: _Error | None = None


_body: Final = msgspec.json.Decoder(_Body)


def judge(answer: Answer, model: str | None, family: Family, now: float) -> Verdict:
    """Return what an answer shows of the account that it came from."""
    match answer:
        case Finished():
            if outcome_of(answer) is Outcome.FAILED:
                return judge_event(answer.final.data or b"", model, family, now)
            return SERVED
        case Delivered():
            return SERVED
        case Rejected():
            return judge_reply(answer.status, answer.headers, answer.body, model, family, now)
        case Cut():
            return HICCUP
        case Failure():
            if answer.code in _LATE:
                return HICCUP
            return UNREACHABLE if answer.retriable else NEUTRAL
        case _:
            assert_never(answer)


def shown(answer: Answer, verdict: Verdict, headers: Headers, *, continues: bool) -> Shown:
    """Return what an answer shows of its account. `headers` are those not reported before;
    `continues`: the client may go on from the response by its id alone."""
    if not isinstance(answer, Finished):
        return Shown(verdict=verdict, headers=headers)
    given = answer.usage.input_tokens or 0
    cached = min(answer.usage.cached_tokens or 0, given)
    return Shown(
        verdict=verdict,
        headers=headers,
        cached_tokens=cached,
        uncached_tokens=given - cached,
        response_id=response_id(answer.final.data or b"") if continues else None,
    )


def withheld(no: Withheld, plan: str | None, now: float) -> Refused:
    """Return the end of a turn that no account may serve."""
    wait = None if no.retry_at is None else no.retry_at - now
    if no.spent:
        return Refused(
            reason=Reason.ACCOUNTS_SPENT,
            retry_seconds=wait,
            detail=no.words,
            spent=SpentQuota(resets_at=no.retry_at, plan_type=plan),
        )
    return Refused(
        reason=Reason.ACCOUNTS_WITHHELD,
        retry_seconds=wait,
        detail=f"{no.words}; {no.advice}" if no.advice else no.words,
    )


def withheld_locally(failure: CredentialFailure) -> Refused:
    """Return the same where the credential of the account that would serve cannot be had."""
    return Refused(
        reason=Reason.ACCOUNTS_WITHHELD,
        retry_seconds=failure.retry_seconds,
        detail=failure.message,
    )


def refuses_encrypted(answer: Answer) -> bool:
    """Whether the upstream cannot read encrypted items, which then came from another account."""
    if not isinstance(answer, Rejected) or answer.status != 400:
        return False
    try:
        error = _body.decode(answer.body).error
    except UNREADABLE:
        return False
    return error is not None and error.code == _ENCRYPTED
