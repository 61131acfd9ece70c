"""Bindings: which account holds the prompt cache of which thread; bounded, oldest use first out.

A binding belongs to a thread (its id is scoped by its principal) and a model family: each model
has a cache of its own, and neither evicts the other's.

Beside them, in memory alone: what an account gave to a client and no other account can read, that
is, response ids, turn state and encrypted reasoning.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Generic, NewType, TypeVar

from proxy.accounts.route import Binding
from proxy.accounts.view import AccountId, Family

ThreadName = NewType("ThreadName", str)
BindingKey = tuple[ThreadName, Family]

MOST_BINDINGS: Final = 2048
NO_GENERATION: Final = 0
K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A bounded mapping that forgets what was set longest ago."""

    def __init__(self, most: int = MOST_BINDINGS) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K | None) -> V | None:
        return None if key is None else self._values.get(key)

    def set(self, key: K, value: V) -> K | None:
        """Set a value; returns the key that had to go, if one had."""
        self._values[key] = value
        self._values.move_to_end(key)
        return self._values.popitem(last=False)[0] if len(self._values) > self._most else None

    def drop(self, key: K) -> None:
        self._values.pop(key, None)

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def values(self) -> Iterable[V]:
        return self._values.values()

    def items(self) -> Iterable[tuple[K, V]]:
        return self._values.items()

    def drop_values(self, goes: Callable[[V], bool]) -> None:
        for key in [key for key, each in self._values.items() if goes(each)]:
            del self._values[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Encrypted reasoning of a thread that `account` cannot read: the items up to the one marked
    `last`. Later ones are its own."""

    account: AccountId
    last: bytes


class IssuedKind(StrEnum):
    """What a client gets from an account, to send along with a later turn."""

    RESPONSE = "response"
    """A response id."""
    STATE = "state"
    """Turn state, opaque to clients and to us."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Which account gave something to which principal; it is of use with both alone."""

    account: AccountId
    principal: str


class Bindings:
    """`changed` holds the keys that were set or dropped since they were last taken."""

    def __init__(self, known: Iterable[tuple[BindingKey, Binding]] = ()) -> None:
        self._bound = Recent[BindingKey, Binding]()
        self._served = Recent[ThreadName, AccountId]()
        self._child = Recent[ThreadName, AccountId]()
        self._foreign = Recent[BindingKey, Foreign]()
        self._issuers = Recent[bytes, Issuer]()
        self._changed: set[BindingKey] = set()
        for key, binding in known:
            self._bound.set(key, binding)
            self._served.set(key[0], binding.detour or binding.account)

    def __len__(self) -> int:
        return len(self._bound)

    def get(self, key: BindingKey | None) -> Binding | None:
        return self._bound.get(key)

    def keep(self, key: BindingKey, binding: Binding) -> None:
        gone = self._bound.set(key, binding)
        self._changed.add(key)
        if gone is not None:
            self._changed.add(gone)

    def drop(self, key: BindingKey) -> None:
        self._bound.drop(key)
        self._changed.add(key)

    def forget(self, account: AccountId) -> None:
        """Forget an account. What was bound to it stays, so that the next turn can say why it
        moves, but with a generation that no account of that name can have."""
        for key, binding in [*self._bound.items()]:
            if binding.account == account:
                self._bound.set(key, replace(binding, generation=NO_GENERATION))
                self._changed.add(key)
        self._served.drop_values(lambda each: each == account)
        self._child.drop_values(lambda each: each == account)
        self._foreign.drop_values(lambda each: each.account == account)
        self._issuers.drop_values(lambda each: each.account == account)

    def take_changed(self) -> list[tuple[BindingKey, Binding | None]]:
        """Return what to write down: the binding of each changed key, None for one that is gone."""
        changed = [(key, self._bound.get(key)) for key in self._changed]
        self._changed.clear()
        return changed

    def families(self, thread: ThreadName) -> list[Family]:
        """Return the model families that a thread is bound for."""
        return [family for name, family in self._bound if name == thread]

    def has_changed(self, key: BindingKey) -> bool:
        """Whether it was set or dropped since the changes were last taken."""
        return key in self._changed

    def put_back(self, keys: Iterable[BindingKey]) -> None:
        """Mark keys as changed again, because they could not be written."""
        self._changed.update(keys)

    def note_served(
        self, thread: ThreadName | None, parent: ThreadName | None, account: AccountId
    ) -> None:
        """Remember where a thread is served now, for its children and its siblings."""
        if thread is not None:
            self._served.set(thread, account)
        if parent is not None:
            self._child.set(parent, account)

    def served(self, thread: ThreadName | None) -> AccountId | None:
        return self._served.get(thread)

    def last_child(self, parent: ThreadName | None) -> AccountId | None:
        return self._child.get(parent)

    def note_foreign(self, key: BindingKey, foreign: Foreign) -> None:
        self._foreign.set(key, foreign)

    def foreign(self, key: BindingKey | None, account: AccountId) -> bytes | None:
        known = self._foreign.get(key)
        return known.last if known is not None and known.account == account else None

    def note_issuer(self, kind: IssuedKind, value: str | None, issuer: Issuer) -> None:
        """Remember who gave `value` to whom; as a digest, since it may be long, or a secret."""
        if value:
            self._issuers.set(_digest(kind, value), issuer)

    def issuer(self, kind: IssuedKind, value: str | None) -> Issuer | None:
        return self._issuers.get(_digest(kind, value)) if value else None

    def per_account(self) -> dict[AccountId, int]:
        counts: dict[AccountId, int] = {}
        for binding in self._bound.values():
            counts[binding.account] = counts.get(binding.account, 0) + 1
        return counts


def _digest(kind: IssuedKind, value: str) -> bytes:
    text = f"{kind} {value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
