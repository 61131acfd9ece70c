"""Store: records written, bounded, and read back, whatever became of the file."""

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.journal.outcome import Outcome, Transport
from proxy.journal.record import TurnRecord
from proxy.journal.store import (
    JOURNAL_NAME,
    MOST_DAYS,
    MOST_ROWS,
    PAGE_ROWS,
    Store,
    after,
    newest,
    open_store,
)
from proxy.responses.events import TokenUsage

WALL = 1_800_000_000.0
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
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(tmp_path, WALL)) as store:
        yield store


def numbered(count: int, **changed: Any) -> list[TurnRecord]:
    return [replace(PLAIN, total_ms=float(number), **changed) for number in range(count)]


def read(home: Path, count: int = MOST_ROWS) -> list[TurnRecord]:
    return [record for _, record in newest(home, count)]


def test_a_record_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    store.append([PLAIN, WHOLE])

    assert read(tmp_path) == [PLAIN, WHOLE]


def test_a_reader_sees_each_batch_while_the_writer_goes_on(store: Store, tmp_path: Path) -> None:
    store.append(numbered(3))
    seen = newest(tmp_path, 2)
    store.append(numbered(PAGE_ROWS + 5))
    since = list(after(tmp_path, seen[-1][0]))

    assert [record.total_ms for _, record in seen] == [1.0, 2.0]
    assert [record.total_ms for _, record in since] == [float(x) for x in range(PAGE_ROWS + 5)]


def test_the_rows_are_bounded(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, WALL, most_rows=50)) as store:
        store.append(numbered(50))
        store.append(numbered(3))
    kept = read(tmp_path)

    assert len(kept) == 50
    assert [record.total_ms for record in kept[:1] + kept[-3:]] == [3.0, 0.0, 1.0, 2.0]


def test_old_records_are_forgotten_step_by_step(store: Store, tmp_path: Path) -> None:
    store.append(numbered(PAGE_ROWS + 5))
    later = WALL + MOST_DAYS * DAY + 1
    store.append([replace(PLAIN, wall=later)])
    first = read(tmp_path)
    store.append([replace(PLAIN, wall=later)])

    assert [record.wall for record in first] == [WALL] * 5 + [later]
    assert [record.wall for record in read(tmp_path)] == [later, later]


def test_a_start_forgets_what_has_grown_too_old_meanwhile(store: Store, tmp_path: Path) -> None:
    store.append(numbered(2))
    store.append([replace(PLAIN, wall=WALL + 2 * DAY)])
    open_store(tmp_path, WALL + MOST_DAYS * DAY + 1).close()

    assert [record.wall for record in read(tmp_path)] == [WALL + 2 * DAY]


def test_a_count_beyond_all_measure_is_unknown(store: Store, tmp_path: Path) -> None:
    store.append([replace(PLAIN, usage=TokenUsage(input_tokens=2**63, output_tokens=2**63 - 1))])

    assert read(tmp_path)[0].usage == TokenUsage(input_tokens=None, output_tokens=2**63 - 1)


def test_the_journal_is_its_owners_alone(store: Store, tmp_path: Path) -> None:
    store.append([PLAIN])
    files = sorted(tmp_path.iterdir())

    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert [file.name for file in files] == [JOURNAL_NAME + end for end in ("", "-shm", "-wal")]


def test_reading_needs_no_writer_and_no_journal(tmp_path: Path) -> None:
    before = read(tmp_path), list(after(tmp_path, 0)), list(tmp_path.iterdir())
    with closing(open_store(tmp_path, WALL)) as store:
        store.append([WHOLE])

    assert before == ([], [], [])
    assert read(tmp_path) == [WHOLE]


def test_a_journal_from_a_turnlane_that_knew_less_goes_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / JOURNAL_NAME)) as old:
        old.execute("CREATE TABLE turns (id INTEGER PRIMARY KEY AUTOINCREMENT, wall, outcome)")
    with closing(open_store(tmp_path, WALL)) as store:
        store.append([WHOLE])

    assert read(tmp_path) == [WHOLE]


@pytest.mark.parametrize("content", [b"no database" * 99, b"SQLite format 3\0" + b"x" * 4096])
def test_what_is_no_journal_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(content)
    for attempt in (lambda: open_store(tmp_path, WALL), lambda: newest(tmp_path, 1)):
        with pytest.raises(ConfigError, match="move it away"):
            attempt()

    assert (tmp_path / JOURNAL_NAME).read_bytes() == content


def test_a_home_that_cannot_hold_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=JOURNAL_NAME):
        open_store(tmp_path / "missing", WALL)


def test_a_batch_that_fails_leaves_nothing_and_the_next_one_is_written(
    store: Store, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / JOURNAL_NAME, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON turns WHEN NEW.total_ms = 1 "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    with pytest.raises(sqlite3.Error, match="disk full"):
        store.append(numbered(3))
    store.append([WHOLE])

    assert read(tmp_path) == [WHOLE]
