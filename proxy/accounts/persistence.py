"""Shelf: bindings and what is known of accounts, in SQLite, so that a restart keeps every cache.

One connection, used by one thread at a time. A commit survives the end of the process, however
sudden (write-ahead log, `synchronous = NORMAL`).

Scribe: writes down what changes of bindings and accounts, as soon as it does.

Theory of operation
-------------------
One owner task takes the changes together and has a thread write them; a turn waits for no disk. The
one exception is the end of a turn that has bound its thread anew: it waits a moment until that is
on disk, so that a process that is killed between two turns has forgotten no binding.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from proxy.accounts.bindings import MOST_BINDINGS, BindingKey, Bindings, ThreadName
from proxy.accounts.health import PersistedHealth
from proxy.accounts.route import Binding
from proxy.accounts.view import AccountId, Family
from proxy.errors import ConfigError
from proxy.responses.rawjson import UNREADABLE

SHELF_NAME: Final = "accounts.sqlite3"
_BUSY_SECONDS: Final = 5.0
_COLUMNS: Final = "account, generation, used_at, scored_at, held_since, detour"

_lasting: Final = msgspec.json.Decoder(PersistedHealth)

Changes = Sequence[tuple[BindingKey, Binding | None]]
Known = Sequence[tuple[AccountId, PersistedHealth | None]]


class AccountStore:
    """Raises sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            f"CREATE TABLE IF NOT EXISTS bindings (thread, family, {_COLUMNS}, "
            "PRIMARY KEY (thread, family))"
        )
        database.execute("CREATE TABLE IF NOT EXISTS accounts (id PRIMARY KEY, lasting)")

    def bindings(self) -> list[tuple[BindingKey, Binding]]:
        """Those used last, in the order of their use."""
        rows = self._database.execute(
            f"SELECT * FROM (SELECT thread, family, {_COLUMNS} FROM bindings "
            "ORDER BY used_at DESC LIMIT ?) ORDER BY used_at",
            (MOST_BINDINGS,),
        )
        return [_bound(*row) for row in rows]

    def lasting(self) -> dict[AccountId, PersistedHealth]:
        """What is known of each account; what cannot be read is forgotten."""
        found = {}
        for account, text in self._database.execute("SELECT id, lasting FROM accounts"):
            try:
                found[AccountId(account)] = _lasting.decode(text)
            except UNREADABLE:
                continue
        return found

    def write(self, changes: Changes, accounts: Known) -> None:
        """All of it in one transaction. None stands for what is to be forgotten."""
        kept = [_row(key, binding) for key, binding in changes if binding is not None]
        gone = [key for key, binding in changes if binding is None]
        known = [(account, msgspec.json.encode(each)) for account, each in accounts if each]
        forgotten = [(account,) for account, each in accounts if each is None]
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("DELETE FROM bindings WHERE thread = ? AND family = ?", gone)
            database.executemany(
                f"INSERT OR REPLACE INTO bindings (thread, family, {_COLUMNS}) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                kept,
            )
            database.executemany("INSERT OR REPLACE INTO accounts VALUES (?, ?)", known)
            database.executemany("DELETE FROM accounts WHERE id = ?", forgotten)
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")

    def close(self) -> None:
        self._database.close()


def open_shelf(home: Path) -> AccountStore:
    """The shelf of a home, its owner's alone. Raises ConfigError for one that cannot be used."""
    path = home / SHELF_NAME
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
    except (OSError, sqlite3.Error) as error:
        raise _unusable(path, error) from error
    try:
        return AccountStore(database)
    except sqlite3.Error as error:
        database.close()
        raise _unusable(path, error) from error


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(str(path), f"cannot be used, move it away to begin anew: {error}")


def _row(key: BindingKey, binding: Binding) -> tuple[object, ...]:
    return (
        *key,
        binding.account,
        binding.generation,
        binding.used_at,
        binding.scored_at,
        binding.held_since,
        binding.detour,
    )


def _bound(
    thread: str,
    family: str,
    account: str,
    generation: int,
    used_at: float,
    scored_at: float,
    held_since: float | None,
    detour: str | None,
) -> tuple[BindingKey, Binding]:
    binding = Binding(
        account=AccountId(account),
        generation=generation,
        used_at=used_at,
        scored_at=scored_at,
        held_since=held_since,
        detour=None if detour is None else AccountId(detour),
    )
    return (ThreadName(thread), Family(family)), binding


logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 0.05
"""Between two writes, unless somebody waits."""
PATIENCE_SECONDS: Final = 0.5
"""A disk that is slower than this costs a binding its certainty, not a turn its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is written together."""

    bindings: Changes
    accounts: Sequence[tuple[AccountId, PersistedHealth | None]]


class Scribe:
    """`known` says what is to be kept of an account; None for one that is to be forgotten."""

    def __init__(
        self, bindings: Bindings, known: Callable[[AccountId], PersistedHealth | None]
    ) -> None:
        self._bindings = bindings
        self._known = known
        self._dirty: set[AccountId] = set()
        self._due = trio.Event()
        self._awaited = trio.Event()
        self._under_way: frozenset[BindingKey] = frozenset()
        self._wrote = trio.lowlevel.ParkingLot()
        self._running = False
        self._flushed = False

    def touch(self, account: AccountId | None = None) -> None:
        """Something changed that is to be written down."""
        if account is not None:
            self._dirty.add(account)
        self._due.set()

    async def wait_written(self, key: BindingKey | None) -> None:
        """Until a thread's binding is on disk, or for `PATIENCE_SECONDS`."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while self._running and key is not None and self._is_pending(key):
                self._due.set()
                self._awaited.set()
                await self._wrote.park()

    def _is_pending(self, key: BindingKey) -> bool:
        return key in self._under_way or self._bindings.has_changed(key)

    async def write(self, shelf: AccountStore) -> None:
        """The owner task: write down what changes, until cancelled."""
        own_thread = trio.CapacityLimiter(1)
        self._running = True
        try:
            while True:
                await self._due.wait()
                self._due = trio.Event()
                batch = self._take()
                self._under_way = frozenset(key for key, _ in batch.bindings)
                if not await trio.to_thread.run_sync(_write, shelf, batch, limiter=own_thread):
                    self._bindings.put_back(self._under_way)
                    self._dirty.update(account for account, _ in batch.accounts)
                self._under_way = frozenset()
                self._awaited = trio.Event()
                self._wrote.unpark_all()
                with trio.move_on_after(WRITE_SECONDS):
                    await self._awaited.wait()
        finally:
            self._running = False
            self._wrote.unpark_all()

    def flush(self, shelf: AccountStore) -> None:
        """Write what is left, once and for all: after that another process may be the writer. No
        owner task may run any more."""
        if not self._flushed:
            self._flushed = True
            _write(shelf, self._take())

    def _take(self) -> _Batch:
        """Taken together here, so that the thread touches nothing that a turn does."""
        known = [(account, self._known(account)) for account in self._dirty]
        self._dirty.clear()
        return _Batch(
            bindings=self._bindings.take_changed(),
            accounts=known,
        )


def _write(shelf: AccountStore, batch: _Batch) -> bool:
    try:
        shelf.write(batch.bindings, batch.accounts)
    except sqlite3.Error as error:
        logger.warning("%d bindings are not written down: %s", len(batch.bindings), error)
        return False
    return True
