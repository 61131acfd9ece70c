"""AccountPool: the accounts of one home, and which of them serves which thread.

Theory of operation
-------------------
`claim` decides and acts in one synchronous step: it asks `route`, remembers the answer, and counts
the turn on its account, so that a burst of claims spreads although none has been answered yet. The
block that it opens is one attempt, and leaving the block gives the account back, whatever the
reason. `preview` asks the same `route` and remembers nothing.

What an attempt shows is reported to its claim, which holds the parts of the pool that it writes to
and never calls the pool itself. Bindings and health go to the store as soon as they change.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

from proxy.accounts.account import Account
from proxy.accounts.bindings import Bindings, IssuedKind, ThreadName
from proxy.accounts.claim import FRESH, AccountRequest, Claim
from proxy.accounts.health import PersistedHealth
from proxy.accounts.persistence import AccountStore
from proxy.accounts.route import Route, RouteMemory, RouteRequest, RoutingSettings, Withheld
from proxy.accounts.routing import route
from proxy.accounts.statistics import AccountStatistics
from proxy.accounts.view import AccountId, AccountView, Family

MOST_ACCOUNTS: Final = 64


class AccountPool:
    """The accounts in the order of the configuration, which is that of the ring. `wall` tells the
    time in seconds since the epoch."""

    def __init__(
        self,
        accounts: Iterable[Account],
        settings: RoutingSettings,
        wall: Callable[[], float],
        bindings: Bindings | None = None,
    ) -> None:
        self._accounts = {account.id: account for account in accounts}
        self._settings = settings
        self._wall = wall
        self._bindings = bindings if bindings is not None else Bindings()
        self._cursor: AccountId | None = None
        self.store = AccountStore(self._bindings, self.known)

    def __repr__(self) -> str:
        in_flight = sum(each.in_flight for each in self._accounts.values())
        return (
            f"<AccountPool {[*self._accounts]} {in_flight} attempts, {len(self._bindings)} bound>"
        )

    def __len__(self) -> int:
        return len(self._accounts)

    def all(self) -> tuple[Account, ...]:
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
        """Open one attempt on the account that routing chooses, or yield why there is none."""
        now = self._wall()
        decided = self._route(asked, excluded, now)
        if isinstance(decided, Withheld):
            if decided.move is not None and asked.key is not None:
                self._bindings.drop(asked.key)
                self.store.changed()
            yield decided
            return
        account = self._accounts[decided.account]
        warm = self._remember(asked, decided)
        account.in_flight += 1
        if decided.probe:
            account.health.begin_probe(asked.family, now)
        try:
            yield Claim(
                bindings=self._bindings,
                store=self.store,
                wall=self._wall,
                account=account,
                route=decided,
                asked=asked,
                warm=warm,
                alone=len(self) == 1,
            )
        finally:
            account.in_flight -= 1
            if decided.probe:
                account.health.end_probe(asked.family, self._wall())

    def preview(self, asked: AccountRequest) -> Route | Withheld:
        """Return where the next turn of a thread would go. Nothing is changed."""
        return self._route(asked, frozenset(), self._wall())

    def families(self, thread: ThreadName) -> list[Family]:
        """Return the model families that a thread is bound for."""
        return self._bindings.families(thread)

    def _route(
        self, asked: AccountRequest, excluded: AbstractSet[AccountId], now: float
    ) -> Route | Withheld:
        memory = RouteMemory(
            binding=self._bindings.get(asked.key),
            parent=self._bindings.served(asked.parent),
            sibling=self._bindings.last_child(asked.parent),
            cursor=self._cursor,
            in_flight={each.id: each.in_flight for each in self._accounts.values()},
        )
        request = RouteRequest(
            family=asked.family,
            bound=asked.key is not None,
            anchor=self._anchor(asked),
        )
        return route(self.views(), request, memory, self._settings, now, excluded)

    def _remember(self, asked: AccountRequest, decided: Route) -> bool:
        """Remember a route; return whether its account served the thread last, and so has its
        prompt cache."""
        key = asked.key
        warm = self._bindings.served(asked.thread) == decided.account
        if key is not None and decided.binding is not None:
            self._bindings.keep(key, decided.binding)
            self.store.changed()
        if decided.move in FRESH:
            self._cursor = decided.account
        self._bindings.note_served(asked.thread, asked.parent, decided.account)
        return warm

    def _anchor(self, asked: AccountRequest) -> AccountId | None:
        """Return the account whose response the request continues; None if it is another
        principal's."""
        issuer = self._bindings.issuer(IssuedKind.RESPONSE, asked.previous_response_id)
        ours = issuer is not None and issuer.principal == asked.principal
        return issuer.account if issuer is not None and ours else None

    # The accounts themselves.

    def add(self, account: Account) -> None:
        """Add an account, or replace the one of that name; a different credential ends the bindings
        to it. Raises ValueError if there are too many."""
        if account.id not in self._accounts and len(self) >= MOST_ACCOUNTS:
            raise ValueError(f"there are already {MOST_ACCOUNTS} accounts")
        self._accounts[account.id] = account
        self.store.changed(account.id)

    def remove(self, account: AccountId) -> bool:
        """Remove an account and everything learnt about it: one that is added under this name later
        is another. Return False when there is no such account."""
        if self._accounts.pop(account, None) is None:
            return False
        self._bindings.forget(account)
        self.store.changed(account)
        return True

    def known(self, account: AccountId) -> PersistedHealth | None:
        """Return what to keep about an account; None if it is not in the pool."""
        found = self._accounts.get(account)
        return None if found is None else found.health.persisted()

    def pause(self, account: AccountId, *, paused: bool) -> bool:
        """Pause an account or let it serve again; return False when there is no such account."""
        found = self._accounts.get(account)
        if found is None:
            return False
        found.health.pause(paused=paused)
        self.store.changed(account)
        return True

    def plan(self) -> str | None:
        """Return the plan of the first account whose plan is known."""
        return next((each.health.plan for each in self.all() if each.health.plan), None)

    def statistics(self) -> list[AccountStatistics]:
        now, bound, twins = self._wall(), self._bindings.per_account(), self.twins()
        return [x.statistics(bound.get(x.id, 0), twins[x.id], now) for x in self.all()]

    def twins(self) -> dict[AccountId, tuple[AccountId, ...]]:
        """Return for each account the others that have the same credential."""
        marks = {each.id: each.credential.fingerprint for each in self.all()}
        return {
            name: tuple(x for x, other in marks.items() if mark and other == mark and x != name)
            for name, mark in marks.items()
        }
