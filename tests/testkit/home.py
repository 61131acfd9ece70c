"""What a home keeps on disk, written and read back without a turnlane that serves."""

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
import trio.testing

from proxy.accounts.persistence import AccountStore, Remembered, remember
from proxy.database import Database, open_database
from proxy.database_file import Statement
from proxy.journal.record import TurnRecord
from proxy.journal.store import prepare, statements
from tests.testkit.runtime import WALL


@contextmanager
def journal(home: Path, *records: TurnRecord, wall: float = WALL) -> Iterator[Database]:
    """A journal with some records, its writer being the test."""
    with open_database(home) as database:
        prepare(database, wall)
        keep(database, *records)
        yield database


def keep(database: Database, *records: TurnRecord) -> None:
    if records:
        database.execute(statements(records))


def remembered(home: Path, unwritten: AccountStore | None = None) -> Remembered:
    """What a restart finds, with what `unwritten` has still to write."""
    with open_database(home) as database:
        remember(home, database)
        if unwritten is not None:
            unwritten.write_to(database)
    with open_database(home) as database:
        return remember(home, database)


class SlowDatabase(Database):
    """A disk that writes once it is let `go`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Event()

    def execute(self, statements: Iterable[Statement]) -> None:
        assert self.go.wait(5)
        super().execute(statements)


@asynccontextmanager
async def writing(database: Database) -> AsyncIterator[trio.Nursery]:
    """Have the database written to for the block, and no longer."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(database.write)
        await trio.testing.wait_all_tasks_blocked()
        yield nursery
        nursery.cancel_scope.cancel()
