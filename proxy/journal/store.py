"""Store: the journal's records in SQLite, bounded in rows and age.

Write-ahead logging with `synchronous = NORMAL`: a commit survives the end of the process, however
sudden, and readers never wait for the writer. Only a crash of the machine may cost the last ones.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from proxy.accounts.route import Move
from proxy.errors import ConfigError
from proxy.journal.outcome import Outcome, Transport
from proxy.journal.record import TurnRecord
from proxy.responses.events import TokenUsage

JOURNAL_NAME: Final = "journal.sqlite3"
MOST_ROWS: Final = 200_000
"""About 50 MB; a heavy user makes some thousand turns a day."""
MOST_DAYS: Final = 30
PAGE_ROWS: Final = 1000
"""Read at once, and looked at for their age at once: no step grows with the journal."""
_BUSY_SECONDS: Final = 5.0
_DAY_SECONDS: Final = 86_400.0
_LARGEST: Final = 2**63 - 1

_USAGE: Final = tuple(item.name for item in fields(TokenUsage))
_PLAIN: Final = tuple(item.name for item in fields(TurnRecord) if item.name != "usage")
_COLUMNS: Final = (*_PLAIN, *_USAGE)
_NAMED: Final = ", ".join(_COLUMNS)

_INSERT: Final = f"INSERT INTO turns ({_NAMED}) VALUES ({', '.join('?' for _ in _COLUMNS)})"
_FORGET_MANY: Final = "DELETE FROM turns WHERE id <= (SELECT max(id) FROM turns) - ?"
_FORGET_OLD: Final = (
    "DELETE FROM turns WHERE id IN (SELECT id FROM turns ORDER BY id LIMIT ?) AND wall < ?"
)
_NEWEST: Final = (
    f"SELECT * FROM (SELECT id, {_NAMED} FROM turns ORDER BY id DESC LIMIT ?) ORDER BY id"
)
_AFTER: Final = f"SELECT id, {_NAMED} FROM turns WHERE id > ? ORDER BY id LIMIT ?"

Numbered = tuple[int, TurnRecord]


class Store:
    """One connection, used by one thread at a time. Raises sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection, most_rows: int) -> None:
        self._database = database
        self._most_rows = most_rows
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            f"CREATE TABLE IF NOT EXISTS turns (id INTEGER PRIMARY KEY AUTOINCREMENT, {_NAMED})"
        )
        there = {column[1] for column in database.execute("PRAGMA table_info(turns)")}
        for name in _COLUMNS:
            if name not in there:  # made by a turnlane that knew less
                database.execute(f"ALTER TABLE turns ADD COLUMN {name}")

    def append(self, records: Sequence[TurnRecord]) -> None:
        """Write all of them in one transaction, and forget what is too old or too much."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(_INSERT, map(_row, records))
            database.execute(_FORGET_MANY, (self._most_rows,))
            self.forget_old(records[-1].wall)
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")

    def forget_old(self, wall: float) -> None:
        """Of the oldest ones, those beyond their days."""
        self._database.execute(_FORGET_OLD, (PAGE_ROWS, wall - MOST_DAYS * _DAY_SECONDS))

    def newest(self, count: int) -> list[TurnRecord]:
        """The last `count` records, oldest first."""
        return [_record(row[1:]) for row in self._database.execute(_NEWEST, (count,))]

    def close(self) -> None:
        self._database.close()


def open_store(home: Path, wall: float, most_rows: int = MOST_ROWS) -> Store:
    """The journal of a home, its owner's alone. Raises ConfigError for one that cannot be used."""
    path = home / JOURNAL_NAME
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
    except (OSError, sqlite3.Error) as error:
        raise _unusable(path, error) from error
    try:
        store = Store(database, most_rows)
        store.forget_old(wall)
    except sqlite3.Error as error:
        database.close()
        raise _unusable(path, error) from error
    return store


def newest(home: Path, count: int, *, untouched: bool = False) -> list[Numbered]:
    """The last `count` records, oldest first. Raises ConfigError.

    `untouched`: not even SQLite's own files beside the journal change.
    """
    return _read(home, _NEWEST, (count,), untouched=untouched)


def after(home: Path, number: int, *, untouched: bool = False) -> Iterator[Numbered]:
    """Every record beyond `number`, oldest first. Raises ConfigError."""
    while page := _read(home, _AFTER, (number, PAGE_ROWS), untouched=untouched):
        yield from page
        number = page[-1][0]


def _read(
    home: Path, query: str, values: tuple[int, ...], *, untouched: bool = False
) -> list[Numbered]:
    """Read-only: it needs no lock and changes no record, whoever writes meanwhile."""
    path = home / JOURNAL_NAME
    try:
        if not path.exists():
            return []
        with _as_it_is(path) if untouched else _open(path, "mode=ro") as database:
            return [(row[0], _record(row[1:])) for row in database.execute(query, values)]
    except (sqlite3.Error, ValueError, OSError) as error:
        raise _unusable(path, error) from error


@contextmanager
def _as_it_is(path: Path) -> Iterator[sqlite3.Connection]:
    """A process that was killed leaves its last records in a log beside the journal. To read that,
    SQLite would change it, so a copy is read."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        with _open(path, "mode=ro&immutable=1") as database:
            yield database
        return
    with TemporaryDirectory() as folder:
        for part in (path, log):
            shutil.copyfile(part, Path(folder, part.name))
        with _open(Path(folder, path.name), "mode=rw") as database:
            yield database


def _open(path: Path, how: str) -> closing[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?{how}"
    return closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS))


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(str(path), f"cannot be used, move it away to begin anew: {error}")


def _row(record: TurnRecord) -> list[Any]:
    plain = [getattr(record, name) for name in _PLAIN]
    return [*plain, *(_storable(getattr(record.usage, name)) for name in _USAGE)]


def _storable(count: int | None) -> int | None:
    """An upstream may count what SQLite cannot."""
    return None if count is None or abs(count) > _LARGEST else count


def _record(values: Sequence[Any]) -> TurnRecord:
    named = dict(zip(_COLUMNS, values, strict=True))
    usage = TokenUsage(**{name: named.pop(name) for name in _USAGE})
    named |= {
        "transport": Transport(named["transport"]),
        "outcome": Outcome(named["outcome"]),
        "worker": bool(named["worker"]),
        "move": None if named["move"] is None else Move(named["move"]),
    }
    return TurnRecord(usage=usage, **named)
