"""AccountPool: the accounts, who is bound to which, and what every attempt on them has shown.

Theory of operation
-------------------
`claim` decides and acts in one synchronous step: it asks `route`, remembers the answer, and counts
the turn on its account, so that a burst of claims spreads although none has answered yet. The
block that it opens is one attempt; leaving it, however, gives the account back. `preview` asks the
same `route` and remembers nothing.

What a claim's attempt shows (`answering`, `learn`, `note`) goes to the account's state. Bindings
and states are written down (`scribe`) as soon as they change.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

from proxy.accounts.account import Account
from proxy.accounts.bindings import Bindings, Recent, ThreadName
from proxy.accounts.claim import FRESH, AccountRequest, Claim, Issued, IssuedKind, PoolAccess
from proxy.accounts.health import PersistedHealth
from proxy.accounts.persistence import Scribe
from proxy.accounts.route import Route, RouteMemory, RouteRequest, RoutingSettings, Withheld
from proxy.accounts.routing import route
from proxy.accounts.statistics import AccountStatistics, statistics_of
from proxy.accounts.view import AccountId, AccountView, Family

__all__ = ["MOST_ACCOUNTS", "AccountPool", "AccountStatistics"]

MOST_ACCOUNTS: Final = 64


class _InFlight(Mapping[AccountId, int]):
    """Turns by account, as they are when one asks."""

    def __init__(self, accounts: Mapping[AccountId, Account]) -> None:
        self._accounts = accounts

    def __getitem__(self, account: AccountId) -> int:
        return self._accounts[account].in_flight

    def __iter__(self) -> Iterator[AccountId]:
        return iter(self._accounts)

    def __len__(self) -> int:
        return len(self._accounts)


class AccountPool:
    def __init__(
        self,
        accounts: Iterable[Account],
        settings: RoutingSettings,
        wall: Callable[[], float],
        bindings: Bindings | None = None,
    ) -> None:
        self._accounts = {account.id: account for account in accounts}
        self._in_flight = _InFlight(self._accounts)
        self._settings = settings
        self._wall = wall
        self._bindings = bindings if bindings is not None else Bindings()
        self._gifts = Recent[bytes, Issued]()
        self._cursor: AccountId | None = None
        self.scribe = Scribe(self._bindings, self.known)
        self._books = PoolAccess(
            bindings=self._bindings,
            wall=wall,
            touch=self.scribe.touch,
            gave=self._gave,
            gift=self._gift,
            alone=lambda: len(self) == 1,
        )

    def __len__(self) -> int:
        return len(self._accounts)

    def all(self) -> tuple[Account, ...]:
        """In the order of configuration, which is the order of the ring."""
        return tuple(self._accounts.values())

    def get(self, account: AccountId) -> Account | None:
        return self._accounts.get(account)

    def views(self) -> list[AccountView]:
        return [account.view() for account in self._accounts.values()]

    # Serving.

    @contextmanager
    def claim(
        self, asked: AccountRequest, excluded: AbstractSet[AccountId] = frozenset()
    ) -> Iterator[Claim | Withheld]:
        """One attempt on the account that routing names, or why there is none."""
        now = self._wall()
        decided = self._route(asked, excluded, now)
        if isinstance(decided, Withheld):
            if decided.move is not None and asked.key is not None:
                self._bindings.drop(asked.key)
                self.scribe.touch()
            yield decided
            return
        account = self._accounts[decided.account]
        warm = self._remember(asked, decided)
        account.in_flight += 1
        if decided.probe:
            account.state.begin_probe(asked.family, now)
        try:
            yield Claim(self._books, account, decided, asked, warm=warm)
        finally:
            account.in_flight -= 1
            if decided.probe:
                account.state.end_probe(asked.family, self._wall())

    def preview(self, asked: AccountRequest) -> Route | Withheld:
        """Where the next turn of a thread would go; changes nothing."""
        return self._route(asked, frozenset(), self._wall())

    def families(self, thread: ThreadName) -> list[Family]:
        """The model families that a thread is bound for."""
        return self._bindings.families(thread)

    def _route(
        self, asked: AccountRequest, excluded: AbstractSet[AccountId], now: float
    ) -> Route | Withheld:
        memory = RouteMemory(
            binding=self._bindings.get(asked.key),
            parent=self._bindings.served(asked.parent),
            sibling=self._bindings.last_child(asked.parent),
            cursor=self._cursor,
            in_flight=self._in_flight,
        )
        wish = RouteRequest(
            family=asked.family,
            bound=asked.key is not None,
            anchor=self._anchor(asked),
        )
        return route(self.views(), wish, memory, self._settings, now, excluded)

    def _remember(self, asked: AccountRequest, decided: Route) -> bool:
        """Returns whether this account served the thread last, and so has its prompt cache."""
        key = asked.key
        warm = self._bindings.served(asked.thread) == decided.account
        if key is not None and decided.binding is not None:
            self._bindings.keep(key, decided.binding)
            self.scribe.touch()
        if decided.move in FRESH:
            self._cursor = decided.account
        self._bindings.note_served(asked.thread, asked.parent, decided.account)
        return warm

    # What belongs to the account that gave it: response ids and turn state.

    def _gave(self, kind: IssuedKind, value: str | None, gift: Issued) -> None:
        if value:
            self._gifts.set(_digest(kind, value), gift)

    def _gift(self, kind: IssuedKind, value: str | None) -> Issued | None:
        return self._gifts.get(_digest(kind, value)) if value else None

    def _anchor(self, asked: AccountRequest) -> AccountId | None:
        gift = self._gift(IssuedKind.RESPONSE, asked.previous_response_id)
        return gift.account if gift is not None and gift.principal == asked.principal else None

    # The accounts themselves.

    def add(self, account: Account) -> None:
        """Replaces the account of that name, if there is one; what is bound to it then ends, if
        the credential is another. Raises ValueError when there are too many."""
        if account.id not in self._accounts and len(self) >= MOST_ACCOUNTS:
            raise ValueError(f"there are {MOST_ACCOUNTS} accounts already")
        self._accounts[account.id] = account
        self.scribe.touch(account.id)

    def remove(self, account: AccountId) -> bool:
        """False when there is no such account. What was learnt of it goes too: whoever comes under
        this name later is another, to which nothing is bound."""
        if self._accounts.pop(account, None) is None:
            return False
        self.forget(account)
        return True

    def forget(self, account: AccountId) -> None:
        """Of an account that is not here."""
        self._bindings.forget(account)
        self._gifts.drop_values(lambda gift: gift.account == account)
        self.scribe.touch(account)

    def known(self, account: AccountId) -> PersistedHealth | None:
        """What is known of an account that is here."""
        found = self._accounts.get(account)
        return None if found is None else found.state.lasting()

    def changed(self, account: AccountId) -> None:
        """Something was learnt of an account outside of any claim."""
        self.scribe.touch(account)

    def pause(self, account: AccountId, *, paused: bool) -> bool:
        """False when there is no such account."""
        found = self._accounts.get(account)
        if found is None:
            return False
        found.state.pause(paused=paused)
        self.scribe.touch(account)
        return True

    def plan(self) -> str | None:
        """The plan of the first account that is known to have one."""
        return next((each.state.plan for each in self.all() if each.state.plan), None)

    def statistics(self) -> list[AccountStatistics]:
        now = self._wall()
        bound = self._bindings.per_account()
        return statistics_of(self.all(), bound, now)


def _digest(kind: IssuedKind, value: str) -> bytes:
    text = f"{kind} {value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
