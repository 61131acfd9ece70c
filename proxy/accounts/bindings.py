"""Bindings: which account holds the prompt cache of which thread.

A binding belongs to a thread (its id is scoped by its principal) and a model family: each model
has a cache of its own, and the binding of one says nothing about the other's.

Beside them, and in memory only, there is what an account has issued to a client and no other
account can read: response ids, turn state and encrypted reasoning. Everything is bounded; what was
used longest ago is forgotten first.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NewType, TypeVar

from proxy.accounts.route import Binding
from proxy.accounts.view import AccountId, Family

ThreadName = NewType("ThreadName", str)
BindingKey = tuple[ThreadName, Family]

MOST_BINDINGS: Final = 2048
NO_GENERATION: Final = 0
"""The generation of a binding to an account that was removed. Accounts start at 1, so one that is
added under the same name does not inherit the binding."""
K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A bounded mapping that forgets what was set longest ago. Reading does not count as use."""

    def __init__(self, most: int = MOST_BINDINGS) -> None:
        super().__init__()
        self._most = most

    def find(self, key: K | None) -> V | None:
        return None if key is None else self.get(key)

    def set(self, key: K, value: V) -> K | None:
        """Set a value; return the key that was forgotten for it, if one was."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False)[0] if len(self) > self._most else None

    def drop_values(self, goes: Callable[[V], bool]) -> None:
        for key in [key for key, each in self.items() if goes(each)]:
            del self[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The encrypted reasoning in a thread that `account` cannot read: every item up to the one with
    the mark `last`. Later items are its own."""

    account: AccountId
    last: bytes


class IssuedKind(StrEnum):
    """Something that a client gets from an account and sends back with a later turn."""

    RESPONSE = "response"
    """A response id."""
    STATE = "state"
    """Turn state, which is opaque to clients and to turnlane."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The account that issued something, and the principal it was issued to: no other pair can use
    it."""

    account: AccountId
    principal: str


class Bindings:
    """The bindings of one home, starting with those that are `known`."""

    def __init__(self, known: Iterable[tuple[BindingKey, Binding]] = ()) -> None:
        self._bound = Recent[BindingKey, Binding]()
        self._served = Recent[ThreadName, AccountId]()
        self._child = Recent[ThreadName, AccountId]()
        self._foreign = Recent[BindingKey, Foreign]()
        self._issuers = Recent[bytes, Issuer]()
        self._changed: set[BindingKey] = set()
        """What was set or dropped since the changes were last taken."""
        for key, binding in known:
            self._bound.set(key, binding)
            # The last request went to the detour, if there is one: its prompt is cached there, so
            # children should follow.
            self._served.set(key[0], binding.detour or binding.account)

    def __repr__(self) -> str:
        return f"<Bindings {len(self)} bound, {len(self._changed)} changed>"

    def __len__(self) -> int:
        return len(self._bound)

    def get(self, key: BindingKey | None) -> Binding | None:
        return self._bound.find(key)

    def keep(self, key: BindingKey, binding: Binding) -> None:
        gone = self._bound.set(key, binding)
        self._changed.add(key)
        if gone is not None:
            self._changed.add(gone)

    def drop(self, key: BindingKey) -> None:
        self._bound.pop(key, None)
        self._changed.add(key)

    def forget(self, account: AccountId) -> None:
        """Forget an account. Threads that are bound to it stay bound, with a generation that no
        account has, so that their next turn can say why it moves."""
        for key, binding in [*self._bound.items()]:
            if binding.account == account:
                # Assigned, not `set`: this is not a use, and keeps the order of uses.
                self._bound[key] = replace(binding, generation=NO_GENERATION)
                self._changed.add(key)
        self._served.drop_values(lambda each: each == account)
        self._child.drop_values(lambda each: each == account)
        self._foreign.drop_values(lambda each: each.account == account)
        self._issuers.drop_values(lambda each: each.account == account)

    def families(self, thread: ThreadName) -> list[Family]:
        """Return the model families that a thread is bound for."""
        return [family for name, family in self._bound if name == thread]

    def per_account(self) -> Counter[AccountId]:
        """Count the bindings of each account."""
        return Counter(binding.account for binding in self._bound.values())

    # For the store.

    def take_changed(self) -> list[tuple[BindingKey, Binding | None]]:
        """Return what to write: the binding of each changed key, or None for one that is gone."""
        changed = [(key, self._bound.get(key)) for key in self._changed]
        self._changed.clear()
        return changed

    def has_changed(self, key: BindingKey) -> bool:
        return key in self._changed

    def put_back(self, keys: Iterable[BindingKey]) -> None:
        """Mark keys as changed again, because they could not be written."""
        self._changed.update(keys)

    # In memory only.

    def note_served(
        self, thread: ThreadName | None, parent: ThreadName | None, account: AccountId
    ) -> None:
        """Remember where a thread is served now, for its children and its siblings."""
        if thread is not None:
            self._served.set(thread, account)
        if parent is not None:
            self._child.set(parent, account)

    def served(self, thread: ThreadName | None) -> AccountId | None:
        return self._served.find(thread)

    def last_child(self, parent: ThreadName | None) -> AccountId | None:
        return self._child.find(parent)

    def note_foreign(self, key: BindingKey, foreign: Foreign) -> None:
        self._foreign.set(key, foreign)

    def foreign(self, key: BindingKey | None, account: AccountId) -> bytes | None:
        known = self._foreign.find(key)
        return known.last if known is not None and known.account == account else None

    def note_issuer(self, kind: IssuedKind, value: str | None, issuer: Issuer) -> None:
        """Remember who issued `value` to whom; as a digest, since it may be long, or a secret."""
        if value:
            self._issuers.set(_digest(kind, value), issuer)

    def issuer(self, kind: IssuedKind, value: str | None) -> Issuer | None:
        return self._issuers.get(_digest(kind, value)) if value else None


def _digest(kind: IssuedKind, value: str) -> bytes:
    text = f"{kind} {value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
