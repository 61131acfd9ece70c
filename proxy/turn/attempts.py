"""Attempts: send a turn until one answers, within the bound of sends, on accounts if there are any.

Theory of operation
-------------------
An attempt fails over only before its first event. Then what it showed of its account is noted, and
routing is asked again with that account excluded: it names another, or the same if there is no
other, and then only what got no answer at all is sent once more. What an upstream said stands: when
there is nowhere else to go, its own words are the turn's answer.

A credential that cannot be had is no send. One that the upstream refuses is renewed once.
"""

from dataclasses import dataclass, replace
from typing import Final

import trio

from lifecycle import Ask
from proxy.accounts.bindings import ThreadName
from proxy.accounts.claim import FRESH, AccountRequest, Claim, IssuedKind
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.route import Move, Withheld
from proxy.accounts.verdict import Kind
from proxy.accounts.view import AccountId
from proxy.errors import UpstreamCut
from proxy.headers import HeaderList, find
from proxy.journal.record import Transport
from proxy.refusal import Reason, Refused
from proxy.responses.events import response_id
from proxy.responses.forwarding import for_account
from proxy.responses.reasoning import without_reasoning
from proxy.runtime import Runtime
from proxy.turn.classify import (
    judge,
    refuses_encrypted,
    unanswered,
    withheld,
    withheld_locally,
)
from proxy.turn.ended import Answer, Cut, Ended, Finished, Rejected
from proxy.turn.exchange import Exchange, Prepared, Progress
from proxy.turn.outbox import Outbox
from proxy.turn.relay import Relay, cut
from proxy.upstream.interface import Failure, UpstreamRequest

_ELSEWHERE: Final = frozenset(
    {Kind.QUOTA, Kind.THROTTLED, Kind.HICCUP, Kind.UNREACHABLE, Kind.UNAUTHORIZED}
)
"""What another account may well not answer."""
_REFUSED: Final = frozenset({Kind.QUOTA, Kind.THROTTLED, Kind.UNAUTHORIZED})
_AWAY: Final = FRESH | {Move.DETOUR}
_TURN_STATE: Final = b"x-codex-turn-state"


class Attempts:
    """Of one turn, which holds its lease."""

    def __init__(
        self,
        runtime: Runtime,
        ask: Ask,
        prepared: Prepared,
        exchange: Exchange,
        outbox: Outbox,
        progress: Progress,
    ) -> None:
        self._runtime = runtime
        self._request = prepared.request
        self._previous = prepared.previous_response_id
        self._exchange = exchange
        self._outbox = outbox
        self._progress = progress
        self._model = prepared.model
        self._asked = AccountRequest(
            principal=ask.principal,
            keyed=len(runtime.keys) > 0,
            thread=None if ask.thread is None else ThreadName(ask.thread),
            parent=None if ask.parent is None else ThreadName(ask.parent),
            model=prepared.model,
            previous_response_id=prepared.previous_response_id,
        )

    async def run(self) -> Ended:
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled by now, it sends nothing
        if len(self._runtime.accounts):
            ended = await self._on_accounts()
            if self._progress.move in FRESH:
                await self._runtime.accounts.scribe.wait_written(self._asked.key)
            if isinstance(ended, Refused):
                return replace(ended, asked=self._progress.attempts > 0)
            return ended
        answer: Answer | None = None
        while (answer is None or unanswered(answer)) and self._may_send():
            answer = await self._send(self._request)
        assert answer is not None
        return answer

    async def _on_accounts(self) -> Ended:
        excluded: set[AccountId] = set()
        step: _Step | None = None
        while True:
            with self._runtime.accounts.claim(self._asked, excluded) as claim:
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
                    step = await self._serve(claim, credential)
                elif step is not None:
                    return _MORE if step.refused and not again else step.ended
                excluded.add(claim.account.id)
            assert step is not None
            if not step.elsewhere:
                return step.ended

    def _note_served(self, claim: Claim) -> None:
        """The record names who was asked last, and why the thread left its own account, also when
        the one that it moved to has failed."""
        progress, route = self._progress, claim.route
        progress.serving, progress.account = claim, claim.account.id
        if route.move is not Move.NEW or progress.move is not Move.REBOUND:
            progress.move, progress.reason = route.move, route.reason

    def _knows_anchor(self, claim: Claim) -> bool:
        """Whether the account may know the response that the request goes on from."""
        return self._previous is None or claim.may_have(IssuedKind.RESPONSE, self._previous)

    def _without_anchor(self, step: "_Step | None") -> Ended:
        """Elsewhere the whole input is needed. An account that has only stumbled in this turn still
        knows the response, so its own words are the better answer."""
        if step is not None and not step.refused:
            return step.ended
        return Refused(
            reason=Reason.PREVIOUS_RESPONSE_NOT_FOUND,
            detail=self._previous or "",
        )

    async def _serve(self, claim: Claim, credential: HeaderList) -> "_Step":
        """One attempt on one account, and what it showed of it."""
        body = self._body_for(claim)
        answer = await self._send(self._dressed(claim, credential, body))
        if isinstance(answer, Rejected) and answer.status == 401:
            renewed = await claim.renew(credential)
            if not isinstance(renewed, CredentialFailure) and self._may_send():
                answer = await self._send(self._dressed(claim, renewed, body))
        elif body is not None and refuses_encrypted(answer):
            sane, last = without_reasoning(body)
            if last is not None and self._may_send():
                claim.note_foreign(last)
                answer = await self._send(self._dressed(claim, credential, sane))
        verdict = judge(answer, self._model, self._asked.family, self._runtime.wall())
        claim.note(verdict)
        self._take_in(claim, answer)
        return _Step(
            ended=answer,
            elsewhere=self._progress.committed_at is None and self._goes_on(claim, verdict.kind),
            resend=unanswered(answer),
            refused=verdict.kind in _REFUSED,
        )

    def _goes_on(self, claim: Claim, kind: Kind) -> bool:
        """Whether another account may do better. To a bound thread its own account's denial is the
        answer, and a new one is bound to nobody who has not been asked."""
        if kind is Kind.DENIED:
            sends_left = self._progress.attempts < self._runtime.config.upstream.sends
            return claim.route.move in FRESH and sends_left
        return kind in _ELSEWHERE

    def _body_for(self, claim: Claim) -> bytes | None:
        """Without what this account is known not to read; on the last send after a move without
        what it may not be able to, since there is no further send to find out."""
        body = self._request.body
        if body is None:
            return None
        moved_for_good = (
            self._progress.attempts > 1
            and self._progress.attempts >= self._runtime.config.upstream.sends
            and claim.route.move in _AWAY
        )
        if moved_for_good:
            body, last = without_reasoning(body)
            if last is not None:
                claim.note_foreign(last)
        elif (known := claim.last_foreign) is not None:
            body, _ = without_reasoning(body, known)
        return body

    def _dressed(self, claim: Claim, credential: HeaderList, body: bytes | None) -> UpstreamRequest:
        """The request as this account sends it: its own credential, nobody else's state."""
        state = find(self._request.headers, _TURN_STATE)
        keep = claim.may_have(IssuedKind.STATE, state)
        return replace(
            self._request,
            base_url=claim.account.base_url,
            headers=for_account(self._request.headers, credential, keep_turn_state=keep),
            body=body,
        )

    def _may_send(self) -> bool:
        """Charge a send, if there may be one; the first was announced, so it always may be."""
        progress = self._progress
        assert progress.lease is not None
        if progress.attempts >= self._runtime.config.upstream.sends:
            return False
        if not progress.lease.sent() and progress.attempts:
            return False
        progress.attempts += 1
        return True

    async def _send(self, request: UpstreamRequest) -> Answer:
        progress, settings = self._progress, self._runtime.config.upstream
        seconds = settings.first_event_seconds if request.streamed else settings.whole_body_seconds
        with trio.move_on_after(seconds) as progress.patience:
            try:
                async with self._runtime.upstream.open(request) as reply:
                    if isinstance(reply, Failure):
                        return reply
                    progress.replied(reply)
                    relay = Relay(
                        reply, self._exchange, self._outbox, progress, settings.silence_seconds
                    )
                    return await relay.run(streamed=request.streamed)
            except UpstreamCut as error:
                return cut(progress, str(error))
        if progress.finished is not None:  # the time ran out while lingering
            return progress.finished
        if progress.committed_at is not None:
            return Cut(how="the upstream fell silent")
        return Failure(
            status=504,
            code="upstream_timeout",
            message=f"the upstream sent no event within {seconds:g} s",
            retriable=False,
        )

    # What the answers say.

    def _take_in(self, claim: Claim, answer: Answer) -> None:
        if not isinstance(answer, Finished):
            return
        usage = answer.usage
        if usage.input_tokens is not None:
            cached = min(usage.cached_tokens or 0, usage.input_tokens)
            claim.note_tokens(cached, usage.input_tokens - cached)
        if self._exchange.transport is Transport.HTTP:
            claim.gave(IssuedKind.RESPONSE, response_id(answer.final.data or b""))

    def _withheld(self, no: Withheld, step: "_Step | None") -> Ended:
        """Nobody may be sent to. With one account its own words are the better answer."""
        progress, accounts = self._progress, self._runtime.accounts
        if step is not None and len(accounts) == 1:
            return step.ended
        if no.move is not None or progress.move is None:
            progress.move, progress.reason = no.move, no.reason
        return withheld(no, accounts.plan(), self._runtime.wall())


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
    detail="those that were asked refused it; another may serve it when it comes again",
)
"""The sends are used up, and the accounts are not. A plain 429 would end a Codex turn for good."""
