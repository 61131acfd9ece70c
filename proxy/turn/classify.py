"""Verdicts, pure: what the answer to one send says of its account, and of what to try next; and
what a turn is told that nobody may be asked for."""

from typing import Final

import msgspec

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
from proxy.accounts.wording import advice, out_of_use
from proxy.journal.outcome import Outcome
from proxy.responses.rawjson import UNREADABLE
from proxy.turn.ended import Ended, SpentQuota
from proxy.upstream.interface import Failure

Answer = Ended | Failure

_ENCRYPTED: Final = "invalid_encrypted_content"
_LATE: Final = frozenset({"upstream_cut", "upstream_timeout"})


class _Error(msgspec.Struct):
    code: str | None = None


class _Body(msgspec.Struct):
    error: _Error | None = None


_body: Final = msgspec.json.Decoder(_Body)


def judge(answer: Answer, model: str | None, family: Family, now: float) -> Verdict:
    """What an answer shows of the account that it came from."""
    if isinstance(answer, Failure):
        if answer.code in _LATE:
            return HICCUP
        return UNREACHABLE if answer.retriable else NEUTRAL
    if (no := answer.rejected) is not None:
        return judge_reply(no.status, no.headers, no.body, model, family, now)
    match answer.outcome:
        case Outcome.COMPLETED | Outcome.INCOMPLETE:
            return SERVED
        case Outcome.FAILED if answer.final is not None:
            return judge_event(answer.final.data or b"", model, family, now)
        case Outcome.CUT:
            return HICCUP
        case _:
            return NEUTRAL


def withheld(no: Withheld, plan: str | None, now: float) -> Ended:
    """The end of a turn that no account may serve."""
    wait = None if no.retry_at is None else no.retry_at - now
    said, mend = out_of_use(no.standings), advice(no.standings)
    if no.spent:
        return Ended(
            outcome=Outcome.REFUSED,
            refusal="accounts_spent",
            retry_seconds=wait,
            detail=said,
            spent=SpentQuota(resets_at=no.retry_at, plan_type=plan),
        )
    return Ended(
        outcome=Outcome.REFUSED,
        refusal="accounts_withheld",
        retry_seconds=wait,
        detail=f"{said}; {mend}" if mend else said,
    )


def withheld_locally(failure: CredentialFailure) -> Ended:
    """The same where the credential of the account that would serve cannot be had."""
    return Ended(
        outcome=Outcome.REFUSED,
        refusal="accounts_withheld",
        retry_seconds=failure.retry_seconds,
        detail=failure.message,
    )


def concluded(answer: Answer) -> Ended:
    """The answer as the end of its turn."""
    if isinstance(answer, Failure):
        return Ended(outcome=Outcome.UPSTREAM_FAILED, failure=answer)
    return answer


def unanswered(answer: Answer) -> bool:
    """There was no reply that could stand; the very same may be sent once more."""
    return isinstance(answer, Failure) and answer.retriable


def status_of(answer: Answer) -> int | None:
    """The status of an upstream's no."""
    return answer.rejected.status if isinstance(answer, Ended) and answer.rejected else None


def refuses_encrypted(answer: Answer) -> bool:
    """Whether the upstream cannot read encrypted items, which then came from another account."""
    if not isinstance(answer, Ended) or answer.rejected is None or answer.rejected.status != 400:
        return False
    try:
        error = _body.decode(answer.rejected.body).error
    except UNREADABLE:
        return False
    return error is not None and error.code == _ENCRYPTED
