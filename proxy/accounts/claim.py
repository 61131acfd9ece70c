"""Claim: one attempt of a turn on an account, and what it shows of that account.

Theory of operation
-------------------
An attempt reports to its claim twice. `answering`, at the first event: from then on the account is
known to serve, although its stream may go on for minutes. `settle`, at the end: everything else.
What is learnt goes to the account, to the bindings and to the store.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.accounts.account import Account
from proxy.accounts.bindings import (
    BindingKey,
    Bindings,
    Foreign,
    IssuedKind,
    Issuer,
    ThreadName,
)
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.persistence import AccountStore
from proxy.accounts.route import Move, Route
from proxy.accounts.usage import QuotaUsage, usage_in_event, usage_in_headers
from proxy.accounts.verdict import Kind, Verdict
from proxy.accounts.view import Family, family_of
from proxy.headers import HeaderList, Headers, find

logger = logging.getLogger(__name__)

FRESH: Final = frozenset({Move.NEW, Move.REBOUND})
"""Moves that make a new binding."""
_TURN_STATE: Final = b"x-codex-turn-state"
_AT_HOME: Final = frozenset({Move.REUSED, Move.HELD})
_WORTH_A_LINE: Final = frozenset(
    {Kind.QUOTA, Kind.UNAUTHORIZED, Kind.THROTTLED, Kind.UNREACHABLE, Kind.DENIED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRequest:
    """A turn's request for an account. `parent` is the thread that this one is a child of. `keyed`:
    there are several principals, so an id of unknown origin may belong to another one."""

    principal: str = ""
    keyed: bool = False
    thread: ThreadName | None = None
    parent: ThreadName | None = None
    model: str | None = None
    previous_response_id: str | None = None
    family: Family = field(init=False)
    key: BindingKey | None = field(init=False)

    def __post_init__(self) -> None:
        family = family_of(self.model)
        object.__setattr__(self, "family", family)
        object.__setattr__(self, "key", None if self.thread is None else (self.thread, family))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an attempt showed of its account.

    `headers` are those of a reply that had no first event; otherwise `answering` has reported them.
    The tokens are input tokens. `response_id` is a response that the client may continue.
    """

    verdict: Verdict
    headers: Headers = ()
    cached_tokens: int = 0
    uncached_tokens: int = 0
    response_id: str | None = None


class Claim:
    """One attempt. `warm`: the account served the thread last, so its prompt cache is there.
    `alone`: the pool has no other account."""

    def __init__(
        self,
        *,
        bindings: Bindings,
        store: AccountStore,
        wall: Callable[[], float],
        account: Account,
        route: Route,
        asked: AccountRequest,
        warm: bool,
        alone: bool,
    ) -> None:
        self._bindings = bindings
        self._store = store
        self._wall = wall
        self._asked = asked
        self._warm = warm
        self._alone = alone
        self._began = wall()
        self.account = account
        self.route = route

    def __repr__(self) -> str:
        seconds = self._wall() - self._began
        return f"<Claim {self.account.id} {self.route.move} ({self.route.reason}) {seconds:.1f} s>"

    async def headers(self) -> HeaderList | CredentialFailure:
        """Return the headers that authorize a request, refreshed if need be. A failure is noted."""
        return self._noted(await self.account.credential.headers(self._wall()))

    async def renew(self, used: HeaderList) -> HeaderList | CredentialFailure:
        """Return headers with another token than `used`, which the provider has refused."""
        refused = next((value for name, value in used if name == b"authorization"), b"")
        return self._noted(await self.account.credential.renew(refused, self._wall()))

    def _noted(self, found: HeaderList | CredentialFailure) -> HeaderList | CredentialFailure:
        now = self._wall()
        self.account.health.adopt(self.account.credential.fingerprint)
        if isinstance(found, CredentialFailure):
            self.account.failed(found, now)
            cause = " (a local cause)" if found.local else ""
            logger.warning("account %s: %s%s", self.account.id, found.message, cause)
            self._unbind()
        return found

    # What the attempt shows.

    def answering(self, headers: Headers) -> None:
        """Note the first event of a reply with these headers: the account serves."""
        now = self._wall()
        self._learn_headers(headers, now)
        self.account.health.answering(self._asked.family, self._began)
        self.account.tally.turn(now, cold=not self._warm)
        self._store.changed(self.account.id)

    def learn_event(self, data: bytes) -> None:
        """Learn from a `codex.rate_limits` event, which may come at any time of a stream."""
        now = self._wall()
        self._learn(usage_in_event(data, now), now)

    def settle(self, shown: Shown) -> None:
        """Note how the attempt ended, as far as that says something about the account."""
        now = self._wall()
        verdict = shown.verdict
        self._learn_headers(shown.headers, now)
        self.account.note(verdict, self._asked.family, self._began, now)
        if shown.cached_tokens or shown.uncached_tokens:
            self.account.tally.tokens(now, shown.cached_tokens, shown.uncached_tokens)
        self._issued(IssuedKind.RESPONSE, shown.response_id)
        self._store.changed(self.account.id)
        if verdict.kind in _WORTH_A_LINE:
            logger.warning("account %s: %s", self.account.id, _in_words(verdict, now))
        if verdict.kind not in (Kind.SERVED, Kind.NEUTRAL):
            self._unbind()

    def reached(self, headers: Headers) -> None:
        """Note an answer to a request that costs no quota: the credential is valid, but quota may
        still be spent."""
        self._learn_headers(headers, self._wall())
        self.account.reached(self._began)
        self._store.changed(self.account.id)

    def _learn_headers(self, headers: Headers, now: float) -> None:
        if headers:
            self._learn(usage_in_headers(headers, now), now)
            self._issued(IssuedKind.STATE, find(headers, _TURN_STATE))

    def _learn(self, usage: QuotaUsage, now: float) -> None:
        if usage.windows or usage.plan is not None or usage.credits is not None:
            self.account.health.learn(usage, now)
            self._store.changed(self.account.id)

    def _issued(self, kind: IssuedKind, value: str | None) -> None:
        self._bindings.note_issuer(kind, value, Issuer(self.account.id, self._asked.principal))

    def _unbind(self) -> None:
        """Drop the binding that this attempt has made: no binding begins with a failure."""
        key, bindings = self._asked.key, self._bindings
        if key is None or self.route.move not in FRESH:
            return
        if bindings.get(key) == self.route.binding:
            bindings.drop(key)
            self._store.changed()

    # What only the account that issued it can use.

    def may_have(self, kind: IssuedKind, value: str | None) -> bool:
        """Whether the account may be sent what the client was given before.

        A value of unknown origin is taken to come from the account that the thread is bound to, but
        only if there is a single principal: with several, it may be another one's.
        """
        issuer = self._bindings.issuer(kind, value)
        if issuer is None:
            at_home = self.route.move in _AT_HOME or self._alone
            return at_home and not self._asked.keyed
        return issuer == Issuer(self.account.id, self._asked.principal)

    @property
    def last_foreign(self) -> bytes | None:
        """The mark of the last encrypted input item that the account is known not to read."""
        return self._bindings.foreign(self._asked.key, self.account.id)

    def note_foreign(self, last: bytes) -> None:
        if self._asked.key is not None:
            foreign = Foreign(account=self.account.id, last=last)
            self._bindings.note_foreign(self._asked.key, foreign)


def _in_words(verdict: Verdict, now: float) -> str:
    scope = f" for {verdict.family}" if verdict.family else ""
    wait = "" if verdict.retry_at is None else f", said to pass in {verdict.retry_at - now:.0f} s"
    return f"{verdict.kind.value}{scope}{wait}"
