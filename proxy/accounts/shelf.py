"""Shelf: bindings and what is known of accounts, in SQLite, so that a restart keeps every cache.

One connection, used by one thread at a time. A commit survives the end of the process, however
sudden (write-ahead log, `synchronous = NORMAL`).
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from proxy.accounts.account import AccountId, Family
from proxy.accounts.bindings import MOST_BINDINGS, BindingKey, ThreadName
from proxy.accounts.routes import Binding
from proxy.accounts.state import Lasting
from proxy.errors import ConfigError
from proxy.shallow import UNREADABLE

SHELF_NAME: Final = "accounts.sqlite3"
_BUSY_SECONDS: Final = 5.0
_COLUMNS: Final = "account, generation, used_at, scored_at, held_since, detour"

_lasting: Final = msgspec.json.Decoder(Lasting)

Changes = Sequence[tuple[BindingKey, Binding | None]]
Known = Sequence[tuple[AccountId, Lasting | None]]


class Shelf:
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

    def lasting(self) -> dict[AccountId, Lasting]:
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


def open_shelf(home: Path) -> Shelf:
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
        return Shelf(database)
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
