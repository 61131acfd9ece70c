"""Database: the one SQLite file of a home, and the one task that writes to it.

Theory of operation
-------------------
No turn waits for a disk. Each part of turnlane that keeps something gathers its changes in memory
(`Changes`) and says within how many seconds they are to be written. When the earliest of these
moments has come, one task takes the changes of all parts and has a thread write them, each part's
in a transaction of its own. A caller that has to know waits for the end of a write.

The file has a write-ahead log with `synchronous = NORMAL`, so a commit survives the end of the
process, however sudden, and readers never wait for the writer; only a crash of the machine may cost
the last commits (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import trio

from proxy.database_file import DATABASE_NAME, Row, Statement, connect, naming

GAP_SECONDS: Final = 0.05
"""Between two writes, unless a caller waits for one."""


class Changes(Protocol):
    """What one part of turnlane has to write. The writer calls these methods in turn."""

    def take(self) -> Sequence[Statement]:
        """Return what is to be written in one transaction; empty if nothing is."""
        ...

    def settle(self, error: sqlite3.Error | None) -> None:
        """Learn what became of the statements that were taken last."""
        ...


class Database:
    """One connection, used by one thread at a time; raises sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path, "mode=rwc")
        self._parts: list[Changes] = []
        self._sleep: trio.CancelScope | None = None
        self._due = math.inf
        self._next = -math.inf
        self._busy = False
        self._wrote = trio.lowlevel.ParkingLot()
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "writing" if self._busy else "idle" if self.has_writer else "without a writer"
        return f"<Database {self.path} {state}, {len(self._parts)} parts>"

    # At the start and the end, without a writer.

    def table(self, name: str, columns: Sequence[str], *, key: str) -> None:
        """Make a table, or add the columns that it lacks if an older turnlane made it."""
        plain = ", ".join(columns)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({plain}, {key})")
        there = {column[1] for column in self._connection.execute(f"PRAGMA table_info({name})")}
        for column in columns:
            if column not in there:
                self._connection.execute(f"ALTER TABLE {name} ADD COLUMN {column}")

    def query(self, sql: str, values: Row = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def execute(self, statements: Iterable[Statement]) -> None:
        """Execute all of them in one transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, rows in statements:
                connection.executemany(sql, rows)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write what is left. The writer must have ended."""
        for part in self._parts:
            self._write_now(part)

    def checkpoint(self) -> None:
        """Make what is committed survive a crash of the machine too."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()

    # While the writer runs.

    def add(self, part: Changes) -> None:
        """Write the changes of one more part."""
        self._parts.append(part)

    async def leave(self, part: Changes) -> None:
        """Write what a part still has, and take no more of it: from now on another process may be
        the one that writes it. Does nothing for a part that has left."""
        while self._busy:
            await self._wrote.park()
        if part in self._parts:
            self._parts.remove(part)
            self._write_now(part)

    @property
    def has_writer(self) -> bool:
        return self._sleep is not None

    def writes(self, part: Changes) -> bool:
        """Whether the writer runs and takes the changes of this part."""
        return self.has_writer and part in self._parts

    def wake(self, within: float = 0.0) -> None:
        """Have the writer write within so many seconds, or as soon as the gap is over. Without a
        writer, `flush` has to write."""
        if self.has_writer:
            self._wake_at(max(trio.current_time() + within, self._next))

    async def wait_write(self) -> None:
        """Have the writer write at once and wait until a write has ended, or the writer has."""
        if self.has_writer:
            self._wake_at(trio.current_time())
            await self._wrote.park()

    async def write(self) -> None:
        """The owner task: write what changes, until cancelled."""
        own_thread = trio.CapacityLimiter(1)  # decompressing bodies may have all the shared ones
        self._sleep, self._due = trio.CancelScope(), trio.current_time()
        try:
            while True:
                with trio.CancelScope(deadline=self._due) as self._sleep:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint_if_cancelled()  # what is taken next must be written
                self._due = math.inf
                self._busy = True
                taken = [(part, part.take()) for part in self._parts]
                work = [(part, statements) for part, statements in taken if statements]
                if work:
                    errors = await trio.to_thread.run_sync(
                        self._execute_each,
                        [statements for _, statements in work],
                        limiter=own_thread,
                    )
                    for (part, _), error in zip(work, errors, strict=True):
                        part.settle(error)
                self._busy = False
                self._next = trio.current_time() + GAP_SECONDS
                self._wrote.unpark_all()
        finally:
            self._sleep, self._busy = None, False
            self._wrote.unpark_all()

    def _wake_at(self, moment: float) -> None:
        self._due = min(self._due, moment)
        if self._sleep is not None:
            self._sleep.deadline = self._due

    def _execute_each(self, work: list[Sequence[Statement]]) -> list[sqlite3.Error | None]:
        return [self._attempt(statements) for statements in work]

    def _write_now(self, part: Changes) -> None:
        if statements := part.take():
            part.settle(self._attempt(statements))

    def _attempt(self, statements: Sequence[Statement]) -> sqlite3.Error | None:
        try:
            self.execute(statements)
        except sqlite3.Error as error:
            return error
        return None


@contextmanager
def open_database(home: Path) -> Iterator[Database]:
    """Open the database of a home for the block, made for its owner alone; what is left to write at
    the end is written. Raises ConfigError if it cannot be used."""
    path = home / DATABASE_NAME
    with naming(path):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = Database(path)
    try:
        yield database
    finally:
        database.flush()
        database.close()
