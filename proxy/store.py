"""Store: the journal's records in SQLite, bounded in rows and age.

Write-ahead logging with `synchronous = NORMAL`: a commit survives the end of the process, however
sudden, and readers never wait for the writer. Only a crash of the machine may cost the last ones.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from proxy.outbox import Outcome
from proxy.record import TurnRecord
from proxy.responses import Usage

JOURNAL_NAME: Final = "journal.sqlite3"
MOST_ROWS: Final = 200_000
"""About 50 MB; a heavy user makes some thousand turns a day."""
MOST_DAYS: Final = 30
_BUSY_SECONDS: Final = 5.0
_DAY_SECONDS: Final = 86_400.0

_USAGE: Final = tuple(item.name for item in fields(Usage))
_PLAIN: Final = tuple(item.name for item in fields(TurnRecord) if item.name != "usage")
_COLUMNS: Final = (*_PLAIN, *_USAGE)


class Store:
    """One connection, used by one thread at a time. Raises sqlite3.Error."""

    def __init__(self, home: Path) -> None:
        path = home / JOURNAL_NAME
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._database = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        columns = ", ".join(_COLUMNS)
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS turns (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns})"
        )
        self._insert = f"INSERT INTO turns ({columns}) VALUES ({', '.join('?' for _ in _COLUMNS)})"

    def append(self, records: Sequence[TurnRecord]) -> None:
        """Write all of them in one transaction, then forget what is too old or too much."""
        rows = [_row(record) for record in records]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany(self._insert, rows)
            self._database.execute(
                "DELETE FROM turns WHERE id <= (SELECT max(id) FROM turns) - ? OR wall < ?",
                (MOST_ROWS, records[-1].wall - MOST_DAYS * _DAY_SECONDS),
            )
        except sqlite3.Error:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def read(home: Path, after: int = 0, limit: int = 1000) -> Iterator[tuple[int, TurnRecord]]:
    """The newest `limit` records with an id above `after`, oldest first; none without a journal.

    Opened read-only: it needs no lock and changes nothing, whoever writes meanwhile.
    """
    path = home / JOURNAL_NAME
    if not path.exists():
        return
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as database:
        columns = ", ".join(_COLUMNS)
        rows = database.execute(
            f"SELECT * FROM (SELECT id, {columns} FROM turns WHERE id > ? "
            "ORDER BY id DESC LIMIT ?) ORDER BY id",
            (after, limit),
        ).fetchall()
    for number, *values in rows:
        yield number, _record(values)


def _row(record: TurnRecord) -> tuple[Any, ...]:
    plain = (getattr(record, name) for name in _PLAIN)
    return (*plain, *(getattr(record.usage, name) for name in _USAGE))


def _record(values: Sequence[Any]) -> TurnRecord:
    named = dict(zip(_COLUMNS, values, strict=True))
    usage = Usage(**{name: named.pop(name) for name in _USAGE})
    named |= {"outcome": Outcome(named["outcome"]), "worker": bool(named["worker"])}
    return TurnRecord(usage=usage, **named)
