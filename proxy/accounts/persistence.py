"""What is kept of bindings and accounts on disk, so that a restart keeps every prompt cache.

Theory of operation
-------------------
`AccountStore` notes which bindings and accounts have changed. Their state is taken only when the
database writes. No turn waits for that, with one exception: the end of a turn that has made a
binding waits until the binding is on disk, for at most `PATIENCE_SECONDS`. So a process that is
killed between two turns has lost no binding.

Upgrade: an older turnlane kept all this in a database of its own. While that file exists it holds
the truth; the process that has the home's lock moves its content and removes it.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from proxy.accounts.bindings import MOST_BINDINGS, BindingKey, Bindings, ThreadName
from proxy.accounts.health import PersistedHealth
from proxy.accounts.route import Binding
from proxy.accounts.view import AccountId, Family
from proxy.database import Database
from proxy.database_file import Row, Statement, naming, read
from proxy.files import remove_file
from proxy.responses.rawjson import UNREADABLE

logger = logging.getLogger(__name__)

OLD_NAME: Final = "accounts.sqlite3"
PATIENCE_SECONDS: Final = 0.5
"""On a slower disk, a turn ends before its binding is known to be written."""

_KEY: Final = ("thread", "family")
_BINDING: Final = ("account", "generation", "used_at", "scored_at", "held_since", "detour")
_NAMED: Final = ", ".join((*_KEY, *_BINDING))
_KEEP_BINDING: Final = f"INSERT OR REPLACE INTO bindings ({_NAMED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DROP_BINDING: Final = "DELETE FROM bindings WHERE thread = ? AND family = ?"
_KEEP_ACCOUNT: Final = "INSERT OR REPLACE INTO accounts (id, lasting) VALUES (?, ?)"
_DROP_ACCOUNT: Final = "DELETE FROM accounts WHERE id = ?"
_BINDINGS: Final = (
    f"SELECT * FROM (SELECT {_NAMED} FROM bindings ORDER BY used_at DESC LIMIT {MOST_BINDINGS}) "
    "ORDER BY used_at"
)
_ACCOUNTS: Final = "SELECT id, lasting FROM accounts"

_health: Final = msgspec.json.Decoder(PersistedHealth)

BindingChange = tuple[BindingKey, Binding | None]
AccountChange = tuple[AccountId, PersistedHealth | None]
"""What is known now; None for what is to be forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What earlier processes learnt. `bindings` are the most recently used ones, oldest use
    first."""

    bindings: Sequence[tuple[BindingKey, Binding]]
    accounts: dict[AccountId, PersistedHealth]


def remember(home: Path, database: Database, *, reading: bool = False) -> Remembered:
    """Make the tables if they are missing and return what is in them. Unless it is only `reading`,
    the caller holds the home's lock. Raises ConfigError."""
    with naming(database.path):
        database.table("bindings", (*_KEY, *_BINDING), key=f"PRIMARY KEY ({', '.join(_KEY)})")
        database.table("accounts", ("lasting",), key="id PRIMARY KEY")
        old = home / OLD_NAME
        if not old.exists():
            return _remembered(database.query(_BINDINGS), database.query(_ACCOUNTS))
    with naming(old):
        found = _remembered(read(old, "bindings", _BINDINGS), read(old, "accounts", _ACCOUNTS))
    if not reading:
        with naming(database.path):
            database.execute(statements(found.bindings, found.accounts.items()))
            database.checkpoint()
        for end in ("", "-wal", "-shm"):
            remove_file(home / f"{OLD_NAME}{end}")
    return found


def statements(
    bindings: Iterable[BindingChange], accounts: Iterable[AccountChange]
) -> list[Statement]:
    """Return the SQL that writes some changes; empty if there are none."""
    bindings, accounts = [*bindings], [*accounts]
    named: list[tuple[str, list[Row]]] = [
        (_DROP_BINDING, [key for key, each in bindings if each is None]),
        (_KEEP_BINDING, [_row(key, each) for key, each in bindings if each is not None]),
        (_DROP_ACCOUNT, [(account,) for account, each in accounts if each is None]),
        (
            _KEEP_ACCOUNT,
            [(account, msgspec.json.encode(each)) for account, each in accounts if each],
        ),
    ]
    return [(sql, rows) for sql, rows in named if rows]


class AccountStore:
    """Writes changed bindings and accounts through the home's database (`proxy.database.Changes`).
    `known` returns what is to be kept of an account, None if it is to be forgotten."""

    def __init__(
        self, bindings: Bindings, known: Callable[[AccountId], PersistedHealth | None]
    ) -> None:
        self._bindings = bindings
        self._known = known
        self._dirty: set[AccountId] = set()
        self._taken_keys: frozenset[BindingKey] = frozenset()
        self._taken_accounts: frozenset[AccountId] = frozenset()
        self._failing = False
        self._database: Database | None = None

    def __repr__(self) -> str:
        return f"<AccountStore {len(self._dirty)} accounts to write, {self._database}>"

    def write_to(self, database: Database) -> None:
        """Have a database write all changes from now on."""
        self._database = database
        database.add(self)

    def changed(self, account: AccountId | None = None) -> None:
        """Have the changed bindings written, and an account if one is given."""
        if account is not None:
            self._dirty.add(account)
        if self._database is not None:
            self._database.wake()

    async def wait_written(self, key: BindingKey | None) -> None:
        """Wait until a thread's binding is on disk, but no longer than `PATIENCE_SECONDS`, and not
        at all while writes fail."""
        database = self._database
        with trio.move_on_after(PATIENCE_SECONDS):
            while database is not None and database.writes(self) and self._is_pending(key):
                if self._failing:
                    return
                await database.wait_write()

    def _is_pending(self, key: BindingKey | None) -> bool:
        return key is not None and (key in self._taken_keys or self._bindings.has_changed(key))

    async def leave(self) -> None:
        """Write what is left and stop: from here on another process writes."""
        if self._database is not None:
            await self._database.leave(self)

    # Called by the database. Between `take` and `settle` a write is under way, and what changes
    # meanwhile is for the next one.

    def take(self) -> list[Statement]:
        bindings = self._bindings.take_changed()
        accounts = [(account, self._known(account)) for account in self._dirty]
        self._taken_keys = frozenset(key for key, _ in bindings)
        self._taken_accounts = frozenset(self._dirty)
        self._dirty.clear()
        return statements(bindings, accounts)

    def settle(self, error: sqlite3.Error | None) -> None:
        if error is not None:
            if not self._failing:  # once, not for each turn that is served meanwhile
                logger.warning("changes of accounts and bindings are not written yet: %s", error)
            self._bindings.put_back(self._taken_keys)
            self._dirty |= self._taken_accounts
        elif self._failing:
            logger.info("changes of accounts and bindings are written again")
        self._failing = error is not None
        self._taken_keys, self._taken_accounts = frozenset(), frozenset()


def _remembered(bindings: Iterable[Row], accounts: Iterable[Row]) -> Remembered:
    """Decode the rows; an account that cannot be read is forgotten."""
    health = {}
    for account, text in accounts:
        try:
            health[AccountId(account)] = _health.decode(text)
        except UNREADABLE:
            continue
    return Remembered(bindings=[_bound(row) for row in bindings], accounts=health)


def _row(key: BindingKey, binding: Binding) -> Row:
    return (*key, *(getattr(binding, name) for name in _BINDING))


def _bound(row: Row) -> tuple[BindingKey, Binding]:
    thread, family, account, generation, used_at, scored_at, held_since, detour = row
    binding = Binding(
        account=AccountId(account),
        generation=generation,
        used_at=used_at,
        scored_at=scored_at,
        held_since=held_since,
        detour=None if detour is None else AccountId(detour),
    )
    return (ThreadName(thread), Family(family)), binding
