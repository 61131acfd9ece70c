"""The file of a database: opening it, and reading it while another process may write to it.

Commands that only look need no more, so it imports neither trio nor the writer of `proxy.database`.
"""

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from proxy.errors import ConfigError

DATABASE_NAME: Final = "journal.sqlite3"
"""Named for the journal, which had it alone once: while an older turnlane still drains, it writes
its last records to the file of this name."""
_BUSY_SECONDS: Final = 5.0

Row = Sequence[Any]
Statement = tuple[str, Iterable[Row]]
"""SQL and the rows to execute it with. The rows may be made lazily, in the writer's thread."""


def read(
    path: Path, table: str, sql: str, values: Row = (), *, untouched: bool = False
) -> list[Row]:
    """Read from a database that another process may be writing to; needs no lock and repairs
    nothing. Without the file, or the table, there are no rows. Raises sqlite3.Error and OSError.

    `untouched`: not even the files that SQLite keeps beside it change; then no process may write.
    """
    if not path.exists():
        return []
    with _as_it_is(path) if untouched else closing(connect(path, "mode=ro")) as connection:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
        return connection.execute(sql, values).fetchall() if known.fetchone() else []


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file whose content, or place, makes the block fail. Raises ConfigError."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError) as error:
        problem = f"cannot be used: {error}; move it away to start without it"
        raise ConfigError(str(path), problem) from error


@contextmanager
def _as_it_is(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file without changing what is beside it. A process that was killed leaves its last
    records in a log there; to read that, SQLite would change it, so a copy is read."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        with closing(connect(path, "mode=ro&immutable=1")) as connection:
            yield connection
        return
    with TemporaryDirectory() as folder:
        for part in (path, log):
            shutil.copyfile(part, Path(folder, part.name))
        with closing(connect(Path(folder, path.name), "mode=rw")) as connection:
            yield connection


def connect(path: Path, how: str) -> sqlite3.Connection:
    """Open the file as a URI with these parameters (https://www.sqlite.org/uri.html). Raises
    sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )
