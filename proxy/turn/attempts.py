"""Attempts: failover. Send a turn until one answers, within the bound of sends, on accounts if any.

Theory of operation
-------------------
An attempt fails over only before its first event. Then what it showed of its account is noted, and
routing is asked again with that account excluded: it names another, or the same if there is no
other, and then only what got no answer at all is sent once more. When there is nowhere else to go,
what the upstream said last is the turn's answer, in its own words.

A credential that cannot be had is no send. One that the upstream refuses is renewed once, and a
request with encrypted items that its account cannot read is sent once more without them. Both are
sends of the same attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import trio

from lifecycle import Lease
from proxy.accounts.bindings import IssuedKind, ThreadName
from proxy.accounts.claim import FRESH, AccountRequest, Claim
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.pool import AccountPool
from proxy.accounts.route import Move, MoveReason, Withheld
from proxy.accounts.verdict import Kind
from proxy.accounts.view import AccountId
from proxy.config.settings import UpstreamSettings
from proxy.headers import HeaderList, find
from proxy.journal.record import Transport
from proxy.keys import KeyRing
from proxy.refusal import Reason, Refused
from proxy.responses.forwarding import for_account
from proxy.responses.reasoning import without_reasoning
from proxy.turn.classify import (
    judge,
    refuses_encrypted,
    shown,
    withheld,
    withheld_locally,
)
from proxy.turn.ended import Answer, Ended, Rejected
from proxy.turn.exchange import Exchange, Prepared
from proxy.turn.send import Sent, send
from proxy.upstream.interface import Failure, Upstream, UpstreamRequest

_ELSEWHERE: Final = frozenset(
    {Kind.QUOTA, Kind.THROTTLED, Kind.HICCUP, Kind.UNREACHABLE, Kind.UNAUTHORIZED}
)
"""Answers that another account may well not give."""
_REFUSED: Final = frozenset({Kind.QUOTA, Kind.THROTTLED, Kind.UNAUTHORIZED})
_AWAY: Final = FRESH | {Move.DETOUR}
_TURN_STATE: Final = b"x-codex-turn-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Which account a turn went to, and how it came there."""

    account: AccountId | None = None
    move: Move | None = None
    reason: MoveReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTools:
    """What every turn is sent with. `wall` returns seconds since the epoch."""

    upstream: Upstream
    settings: UpstreamSettings
    accounts: AccountPool
    keys: KeyRing
    wall: Callable[[], float]


class Attempts:
    """The sends of one turn. `sends` and `served` are for its record, whatever ends it."""

    def __init__(
        self,
        tools: SendTools,
        lease: Lease,
        exchange: Exchange,
        prepared: Prepared,
    ) -> None:
        self._tools = tools
        self._lease = lease
        self._exchange = exchange
        self._prepared = prepared
        self._request = prepared.request
        self.sends: list[Sent] = []
        self.served = Served()

    @cached_property
    def _asked(self) -> AccountRequest:
        ask, prepared = self._lease.ask, self._prepared
        return AccountRequest(
            principal=ask.principal,
            keyed=len(self._tools.keys) > 0,
            thread=None if ask.thread is None else ThreadName(ask.thread),
            parent=None if ask.parent is None else ThreadName(ask.parent),
            model=prepared.model,
            previous_response_id=prepared.previous_response_id,
        )

    async def run(self) -> Ended:
        """Send until there is an answer that counts. Raises ClientStalled."""
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled by now, it sends nothing
        accounts = self._tools.accounts
        if len(accounts):
            ended = await self._on_accounts()
            if self.served.move in FRESH:
                await accounts.store.wait_written(self._asked.key)
            return replace(ended, asked=bool(self.sends)) if isinstance(ended, Refused) else ended
        answer: Answer | None = None
        while (answer is None or _unanswered(answer)) and self._may_send():
            answer = await self._send(self._request)
        assert answer is not None
        return answer

    async def _on_accounts(self) -> Ended:
        excluded: set[AccountId] = set()
        step: _Step | None = None
        while True:
            with self._tools.accounts.claim(self._asked, excluded) as claim:
                if isinstance(claim, Withheld):
                    return self._withheld(claim, step)
                again = claim.account.id in excluded
                if step is not None and again and not step.resend:
                    return step.ended
                if step is None:
                    self._note_served(claim)
                if not self._knows_anchor(claim):
                    return self._without_anchor(step)
                credential = await claim.headers()
                if isinstance(credential, CredentialFailure):
                    no = withheld_locally(credential)
                    step = step or _Step(ended=no, elsewhere=True, refused=True)
                elif self._may_send():
                    self._note_served(claim)
                    step = await self._attempt(claim, credential)
                elif step is not None:
                    # The sends are used up. Where routing knows yet another account, the client is
                    # asked to come again, because a plain 429 would end its turn for good.
                    return _MORE if step.refused and not again else step.ended
                excluded.add(claim.account.id)
            assert step is not None
            if not step.elsewhere:
                return step.ended

    async def _attempt(self, claim: Claim, credential: HeaderList) -> "_Step":
        """Send on one account, and settle what that showed of it."""
        body = self._body_for(claim)
        answer = await self._send(self._dressed(claim, credential, body), claim)
        if isinstance(answer, Rejected) and answer.status == 401:
            renewed = await claim.renew(credential)
            if not isinstance(renewed, CredentialFailure) and self._may_send():
                answer = await self._send(self._dressed(claim, renewed, body), claim)
        elif body is not None and refuses_encrypted(answer):
            sane, last = without_reasoning(body)
            if last is not None and self._may_send():
                claim.note_foreign(last)
                answer = await self._send(self._dressed(claim, credential, sane), claim)
        sent, asked = self.sends[-1], self._asked
        begun = sent.first_event_at is not None
        verdict = judge(answer, asked.model, asked.family, self._tools.wall())
        claim.settle(
            shown(
                answer,
                verdict,
                () if begun else sent.headers,
                continues=self._exchange.transport is Transport.HTTP,
            )
        )
        return _Step(
            ended=answer,
            elsewhere=not begun and self._goes_on(claim, verdict.kind),
            resend=_unanswered(answer),
            refused=verdict.kind in _REFUSED,
        )

    async def _send(self, request: UpstreamRequest, claim: Claim | None = None) -> Answer:
        tools, sent = self._tools, self.sends[-1]
        return await send(tools.upstream, tools.settings, request, self._exchange, sent, claim)

    def _may_send(self) -> bool:
        """Charge a send, if there may be one, and record it. The first was announced when
        the turn was admitted, so it always may be."""
        if len(self.sends) >= self._tools.settings.sends:
            return False
        if not self._lease.sent() and self.sends:
            return False
        self.sends.append(Sent())
        return True

    def _goes_on(self, claim: Claim, kind: Kind) -> bool:
        """Whether another account may do better. A bound thread's own account has the last word on
        what it denies; a new thread is bound to no account that has not been asked."""
        if kind is Kind.DENIED:
            sends_left = len(self.sends) < self._tools.settings.sends
            return claim.route.move in FRESH and sends_left
        return kind in _ELSEWHERE

    # What goes up.

    def _body_for(self, claim: Claim) -> bytes | None:
        """The body without what this account is known not to read; on the last send after a move
        without what it may not be able to, since there is no further send to find out."""
        body = self._request.body
        if body is None:
            return None
        sends = len(self.sends)
        last_send = sends > 1 and sends >= self._tools.settings.sends
        if last_send and claim.route.move in _AWAY:
            body, last = without_reasoning(body)
            if last is not None:
                claim.note_foreign(last)
        elif (known := claim.last_foreign) is not None:
            body, _ = without_reasoning(body, known)
        return body

    def _dressed(self, claim: Claim, credential: HeaderList, body: bytes | None) -> UpstreamRequest:
        """The request as this account sends it: its own credential, no other account's state."""
        state = find(self._request.headers, _TURN_STATE)
        keep = claim.may_have(IssuedKind.STATE, state)
        return replace(
            self._request,
            base_url=claim.account.base_url,
            headers=for_account(self._request.headers, credential, keep_turn_state=keep),
            body=body,
        )

    def _knows_anchor(self, claim: Claim) -> bool:
        """Whether the account may know the response that the request goes on from."""
        previous = self._asked.previous_response_id
        return previous is None or claim.may_have(IssuedKind.RESPONSE, previous)

    # What is told.

    def _note_served(self, claim: Claim) -> None:
        """The record names who was asked last, and why the thread left its own account, also when
        the one that it moved to has failed."""
        route, served = claim.route, self.served
        if route.move is Move.NEW and served.move is Move.REBOUND:
            self.served = replace(served, account=claim.account.id)
        else:
            self.served = Served(account=claim.account.id, move=route.move, reason=route.reason)

    def _without_anchor(self, step: "_Step | None") -> Ended:
        """Elsewhere the whole input is needed. An account that has only stumbled in this turn still
        knows the response, so its own words are the better answer."""
        if step is not None and not step.refused:
            return step.ended
        return Refused(
            reason=Reason.PREVIOUS_RESPONSE_NOT_FOUND,
            detail=self._asked.previous_response_id or "",
        )

    def _withheld(self, no: Withheld, step: "_Step | None") -> Ended:
        """No account may be asked. With one account its own words are the better answer."""
        accounts = self._tools.accounts
        if step is not None and len(accounts) == 1:
            return step.ended
        if no.move is not None or self.served.move is None:
            self.served = replace(self.served, move=no.move, reason=no.reason)
        return withheld(no, accounts.plan(), self._tools.wall())


def _unanswered(answer: Answer) -> bool:
    """Whether there was no reply that could count, so that the very same may be sent once more."""
    return isinstance(answer, Failure) and answer.retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What an attempt came to; whether another account may do better, or the same once more;
    whether it was this account that was refused."""

    ended: Ended
    elsewhere: bool = False
    resend: bool = False
    refused: bool = False


_MORE: Final = Refused(
    reason=Reason.ACCOUNTS_WITHHELD,
    retry_seconds=1.0,
    detail="those that were asked refused it; retry, since another may serve it",
)
