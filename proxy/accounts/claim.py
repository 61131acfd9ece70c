"""Account: one credential and what is known of it; Claim: one attempt of a turn on an account."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from proxy.accounts.account import Account
from proxy.accounts.bindings import BindingKey, Bindings, Foreign, ThreadName
from proxy.accounts.credentials.refresh import CredentialFailure
from proxy.accounts.route import Move, Route
from proxy.accounts.usage import QuotaUsage, usage_in_event, usage_in_headers
from proxy.accounts.verdict import Kind, Verdict
from proxy.accounts.view import AccountId, Family, family_of
from proxy.headers import HeaderList

logger = logging.getLogger(__name__)

FRESH: Final = frozenset({Move.NEW, Move.REBOUND})
"""Moves that make a binding anew."""
_AT_HOME: Final = frozenset({Move.REUSED, Move.HELD})
_WORTH_A_LINE: Final = frozenset(
    {Kind.QUOTA, Kind.UNAUTHORIZED, Kind.THROTTLED, Kind.UNREACHABLE, Kind.DENIED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRequest:
    """Who wants to be served. `parent` is the thread that this one is a child of; `keyed`: there
    are several principals, so that what nobody remembers may be anybody's."""

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


class IssuedKind(StrEnum):
    """What a client gets from an account, to send along with a later turn."""

    RESPONSE = "response"
    """A response id."""
    STATE = "state"
    """Turn state, opaque to clients and to us."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Something that an account gave to a principal, and that is of use with both alone."""

    account: AccountId
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccess:
    """What a claim writes into: the pool's own."""

    bindings: Bindings
    wall: Callable[[], float]
    touch: Callable[[AccountId | None], None]
    gave: Callable[[IssuedKind, str | None, Issued], None]
    gift: Callable[[IssuedKind, str | None], Issued | None]
    alone: Callable[[], bool]


class Claim:
    """`warm`: this account served the thread last, so its prompt cache is there."""

    def __init__(
        self,
        books: PoolAccess,
        account: Account,
        route: Route,
        asked: AccountRequest,
        *,
        warm: bool,
    ) -> None:
        self._books = books
        self._asked = asked
        self._warm = warm
        self._began = books.wall()
        self.account = account
        self.route = route

    async def headers(self) -> HeaderList | CredentialFailure:
        """The credential that serves, refreshed if need be. A failure is noted, too."""
        return self._noted(await self.account.credential.headers(self._books.wall()))

    async def renew(self, used: HeaderList) -> HeaderList | CredentialFailure:
        """Another credential than `used`, which the provider has refused."""
        refused = next((value for name, value in used if name == b"authorization"), b"")
        return self._noted(await self.account.credential.renew(refused, self._books.wall()))

    def _noted(self, found: HeaderList | CredentialFailure) -> HeaderList | CredentialFailure:
        now = self._books.wall()
        self.account.state.adopt(self.account.credential.fingerprint)
        if isinstance(found, CredentialFailure):
            self.account.failed(found, now)
            cause = " (a local cause)" if found.local else ""
            logger.warning("account %s: %s%s", self.account.id, found.message, cause)
            self._unbind()
        return found

    # What its attempt shows.

    def answering(self) -> None:
        """The first event is here."""
        now = self._books.wall()
        self.account.state.answering(self._asked.family, self._began)
        self.account.tally.turn(now, cold=not self._warm)
        self._books.touch(self.account.id)

    def learn_headers(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._learn(usage_in_headers(headers, self._books.wall()))

    def learn_event(self, data: bytes) -> None:
        self._learn(usage_in_event(data, self._books.wall()))

    def _learn(self, usage: QuotaUsage) -> None:
        if usage.windows or usage.plan is not None or usage.credits is not None:
            self.account.state.learn(usage, self._books.wall())
            self._books.touch(self.account.id)

    def note(self, verdict: Verdict) -> None:
        """How the attempt ended, as far as it tells of the account."""
        now = self._books.wall()
        self.account.note(verdict, self._asked.family, self._began, now)
        self._books.touch(self.account.id)
        if verdict.kind in _WORTH_A_LINE:
            logger.warning("account %s: %s", self.account.id, _in_words(verdict, now))
        if verdict.kind not in (Kind.SERVED, Kind.NEUTRAL):
            self._unbind()

    def reached(self) -> None:
        """What costs no quota was answered: its credential serves, quota may still be spent."""
        self.account.reached(self._began)
        self._books.touch(self.account.id)

    def note_tokens(self, cached: int, uncached: int) -> None:
        self.account.tally.tokens(self._books.wall(), cached, uncached)

    def _unbind(self) -> None:
        """A binding that would begin with a failure is none."""
        key, bindings = self._asked.key, self._books.bindings
        if key is None or self.route.move not in FRESH:
            return
        if bindings.get(key) == self.route.binding:
            bindings.drop(key)
            self._books.touch(None)

    # What belongs to the account that gave it.

    def gave(self, kind: IssuedKind, value: str | None) -> None:
        """Remember what this account gave to the principal; None was not given."""
        self._books.gave(kind, value, Issued(self.account.id, self._asked.principal))

    def may_have(self, kind: IssuedKind, value: str | None) -> bool:
        """Whether the account may be shown what the client got before. What nobody remembers is
        taken to be of the account that the thread is bound to, where there is one caller only."""
        gift = self._books.gift(kind, value)
        if gift is None:
            at_home = self.route.move in _AT_HOME or self._books.alone()
            return at_home and not self._asked.keyed
        return gift == Issued(self.account.id, self._asked.principal)

    @property
    def last_foreign(self) -> bytes | None:
        """The mark of the last encrypted item of the input that the account is known to refuse."""
        return self._books.bindings.foreign(self._asked.key, self.account.id)

    def note_foreign(self, last: bytes) -> None:
        if self._asked.key is not None:
            foreign = Foreign(account=self.account.id, last=last)
            self._books.bindings.note_foreign(self._asked.key, foreign)


def _in_words(verdict: Verdict, now: float) -> str:
    scope = f" for {verdict.family}" if verdict.family else ""
    wait = "" if verdict.retry_at is None else f", said to pass in {verdict.retry_at - now:.0f} s"
    return f"{verdict.kind.value}{scope}{wait}"
