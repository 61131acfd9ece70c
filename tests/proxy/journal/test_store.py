"""Records are written, bounded, and read back as they were."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.database import Database, open_database
from proxy.database_file import DATABASE_NAME
from proxy.errors import ConfigError
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.store import (
    MOST_DAYS,
    MOST_ROWS,
    PAGE_ROWS,
    after,
    newest,
    newest_of,
    prepare,
    statements,
)
from proxy.responses.events import TokenUsage
from tests.testkit.home import journal, keep
from tests.testkit.runtime import WALL

DAY = 86_400.0
PLAIN = TurnRecord(
    wall=WALL, principal="local", transport=Transport.HTTP, outcome=Outcome.COMPLETED
)
WHOLE = TurnRecord(
    wall=WALL,
    principal="key-1",
    transport=Transport.WEBSOCKET,
    outcome=Outcome.REFUSED,
    lane="0" * 32,
    root="1" * 32,
    worker=True,
    model="modèle",
    upstream="api.example",
    attempts=2,
    status=429,
    refusal="lane_busy",
    first_event_ms=0.5,
    total_ms=12.25,
    usage=TokenUsage(input_tokens=3, cached_tokens=0, output_tokens=None),
    bytes_up=7,
    bytes_down=9,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with journal(tmp_path) as database:
        yield database


def numbered(count: int, **changed: Any) -> list[TurnRecord]:
    return [replace(PLAIN, total_ms=float(number), **changed) for number in range(count)]


def records(home: Path, count: int = MOST_ROWS) -> list[TurnRecord]:
    return [record for _, record in newest(home, count)]


def test_a_record_comes_back_as_it_was(database: Database, tmp_path: Path) -> None:
    keep(database, PLAIN, WHOLE)

    assert records(tmp_path) == newest_of(database, 2) == [PLAIN, WHOLE]
    assert newest_of(database, 1) == [WHOLE]


def test_a_reader_goes_on_from_the_last_record_that_it_has_seen(
    database: Database, tmp_path: Path
) -> None:
    keep(database, *numbered(3))
    seen = newest(tmp_path, 2)
    keep(database, *numbered(PAGE_ROWS + 5))
    since = list(after(tmp_path, seen[-1][0]))

    assert [record.total_ms for _, record in seen] == [1.0, 2.0]
    assert [record.total_ms for _, record in since] == [float(x) for x in range(PAGE_ROWS + 5)]


def test_the_rows_are_bounded(database: Database, tmp_path: Path) -> None:
    database.execute(statements(numbered(50), most_rows=50))
    database.execute(statements(numbered(3), most_rows=50))
    kept = records(tmp_path)

    assert len(kept) == 50
    assert [record.total_ms for record in kept[:1] + kept[-3:]] == [3.0, 0.0, 1.0, 2.0]


def test_old_records_are_forgotten_step_by_step(database: Database, tmp_path: Path) -> None:
    keep(database, *numbered(PAGE_ROWS + 5))
    later = WALL + MOST_DAYS * DAY + 1
    keep(database, replace(PLAIN, wall=later))
    first = records(tmp_path)
    keep(database, replace(PLAIN, wall=later))

    assert [record.wall for record in first] == [WALL] * 5 + [later]
    assert [record.wall for record in records(tmp_path)] == [later, later]


def test_a_start_forgets_what_has_grown_too_old_meanwhile(
    database: Database, tmp_path: Path
) -> None:
    keep(database, *numbered(2), replace(PLAIN, wall=WALL + 2 * DAY))
    prepare(database, WALL + MOST_DAYS * DAY + 1)

    assert [record.wall for record in records(tmp_path)] == [WALL + 2 * DAY]


def test_a_count_beyond_all_measure_is_unknown(database: Database, tmp_path: Path) -> None:
    keep(database, replace(PLAIN, usage=TokenUsage(input_tokens=2**63, output_tokens=2**63 - 1)))

    assert records(tmp_path)[0].usage == TokenUsage(input_tokens=None, output_tokens=2**63 - 1)


def test_a_journal_that_was_never_begun_is_empty(tmp_path: Path) -> None:
    missing = records(tmp_path), list(after(tmp_path, 0))
    with open_database(tmp_path):  # as a command about accounts does
        pass

    assert (missing, records(tmp_path)) == (([], []), [])


@pytest.mark.parametrize("content", [b"no database" * 99, b"SQLite format 3\0" + b"x" * 4096])
def test_a_file_that_is_no_journal_is_named_and_left(content: bytes, tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(content)
    with pytest.raises(ConfigError, match="move it away"):
        newest(tmp_path, 1)

    assert (tmp_path / DATABASE_NAME).read_bytes() == content


def test_a_record_that_another_turnlane_wrote_and_this_one_cannot_read_is_named(
    database: Database, tmp_path: Path
) -> None:
    keep(database, PLAIN)
    database.execute([("UPDATE turns SET outcome = ?", [["unheard of"]])])

    with pytest.raises(ConfigError, match="unheard of"):
        newest(tmp_path, 1)
