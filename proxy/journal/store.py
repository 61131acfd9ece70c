"""The journal's table: records written, bounded in rows and age, and read by any process."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.accounts.route import Move
from proxy.database_file import DATABASE_NAME, Row, Statement, naming, read
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.responses.events import TokenUsage

if TYPE_CHECKING:  # it needs trio
    from proxy.database import Database

MOST_ROWS: Final = 200_000
"""About 50 MB; a heavy user makes some thousand turns a day."""
MOST_DAYS: Final = 30
PAGE_ROWS: Final = 1000
"""Rows that are read at once, or looked at for their age at once: no step grows with the table."""
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


def prepare(database: "Database", wall: float) -> None:
    """Make the table if it is missing, and drop the oldest records if they are too old. Raises
    ConfigError."""
    with naming(database.path):
        database.table("turns", _COLUMNS, key="id INTEGER PRIMARY KEY AUTOINCREMENT")
        database.execute([_forget_old(wall)])


def statements(records: Sequence[TurnRecord], most_rows: int = MOST_ROWS) -> list[Statement]:
    """Return what writes some records, and drops those that are too old or too many."""
    return [
        (_INSERT, map(_row, records)),
        (_FORGET_MANY, [(most_rows,)]),
        _forget_old(records[-1].wall),
    ]


def _forget_old(wall: float) -> Statement:
    return _FORGET_OLD, [(PAGE_ROWS, wall - MOST_DAYS * _DAY_SECONDS)]


def newest_of(database: "Database", count: int) -> list[TurnRecord]:
    """Return the last `count` records, oldest first. Raises ConfigError."""
    with naming(database.path):
        return [record for _, record in map(_numbered, database.query(_NEWEST, (count,)))]


def newest(home: Path, count: int, *, untouched: bool = False) -> list[Numbered]:
    """Return the last `count` records of a home, oldest first. Raises ConfigError.

    `untouched` is for a home where no process serves: no file in it changes.
    """
    return _read(home, _NEWEST, (count,), untouched=untouched)


def after(home: Path, number: int, *, untouched: bool = False) -> Iterator[Numbered]:
    """Yield every record beyond `number`, oldest first. Raises ConfigError."""
    while page := _read(home, _AFTER, (number, PAGE_ROWS), untouched=untouched):
        yield from page
        number = page[-1][0]


def _read(home: Path, query: str, values: Row, *, untouched: bool) -> list[Numbered]:
    path = home / DATABASE_NAME
    with naming(path):
        return [*map(_numbered, read(path, "turns", query, values, untouched=untouched))]


def _numbered(row: Row) -> Numbered:
    return row[0], _record(row[1:])


def _row(record: TurnRecord) -> list[Any]:
    plain = [getattr(record, name) for name in _PLAIN]
    return [*plain, *(_storable(getattr(record.usage, name)) for name in _USAGE)]


def _storable(count: int | None) -> int | None:
    """Return a count, or None for one that an upstream made larger than SQLite can hold."""
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
