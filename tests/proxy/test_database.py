"""The database: one file, one writer, readers that change nothing."""

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.database import GAP_SECONDS, Database, open_database
from proxy.database_file import DATABASE_NAME, Row, Statement, read
from proxy.errors import ConfigError
from tests.testkit.home import SlowDatabase, writing

INSERT = "INSERT INTO words (word) VALUES (?)"
SELECT = "SELECT word FROM words ORDER BY id"


@dataclass
class Words:
    """A part that has words to write, and notes when they were taken and written."""

    waiting: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    taken_at: list[float] = field(default_factory=list)
    settled_at: list[float] = field(default_factory=list)

    def take(self) -> list[Statement]:
        words, self.waiting = self.waiting, []
        if not words:
            return []
        self.taken_at.append(_now())
        return [(INSERT, ([word] for word in words))]

    def settle(self, error: sqlite3.Error | None) -> None:
        self.settled.append(str(error or "written"))
        self.settled_at.append(_now())


def _now() -> float:
    return trio.current_time() if trio.lowlevel.in_trio_run() else 0.0


async def settled(part: Words, times: int) -> None:
    """Wait without letting the virtual clock jump."""
    while len(part.settled) < times:
        await trio.lowlevel.checkpoint()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


@contextmanager
def opened(home: Path, *columns: str) -> Iterator[Database]:
    with open_database(home) as database:
        database.table("words", ("word", *columns), key="id INTEGER PRIMARY KEY")
        yield database


def words(home: Path, *, untouched: bool = False) -> list[Row]:
    return read(home / DATABASE_NAME, "words", SELECT, untouched=untouched)


def fill(home: Path, word: str) -> None:
    """Let there be no room for a word."""
    connection = sqlite3.connect(home / DATABASE_NAME)
    connection.execute(
        f"CREATE TRIGGER IF NOT EXISTS full BEFORE INSERT ON words WHEN NEW.word = '{word}' "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    connection.close()


# The file.


def test_a_database_is_made_with_its_home_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with opened(home) as database:
        database.execute([(INSERT, [["one"]])])
        files = sorted(home.iterdir())

        assert [file.name for file in files] == [
            DATABASE_NAME + end for end in ("", "-shm", "-wal")
        ]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"no database" * 99, b"SQLite format 3\0" + b"x" * 4096, None])
def test_a_file_that_is_no_database_is_named_and_left(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / DATABASE_NAME
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match="move it away") as raised, open_database(tmp_path):
        pytest.fail("it was opened")
    assert raised.value.key == str(path)
    assert content is None or path.read_bytes() == content


def test_a_table_of_an_older_turnlane_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        database.execute([(INSERT, [["old"]])])
    with opened(tmp_path, "weight") as database:
        database.execute([("INSERT INTO words (word, weight) VALUES (?, ?)", [("new", 3)])])

        found = database.query("SELECT word, weight FROM words ORDER BY id")

    assert found == [("old", None), ("new", 3)]


def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_is_written(
    database: Database, tmp_path: Path
) -> None:
    fill(tmp_path, "large")
    with pytest.raises(sqlite3.Error, match="disk full"):
        database.execute([(INSERT, [["small"], ["large"]])])
    database.execute([(INSERT, [["next"]])])

    assert words(tmp_path) == [("next",)]


# Reading.


def test_a_reader_sees_what_is_committed_while_the_writer_goes_on(
    database: Database, tmp_path: Path
) -> None:
    database.execute([(INSERT, [["one"]])])
    first = words(tmp_path)
    database.execute([(INSERT, [["two"]])])

    assert (first, words(tmp_path)) == ([("one",)], [("one",), ("two",)])


@pytest.mark.parametrize("untouched", [False, True])
def test_where_there_is_nothing_to_read_nothing_is_made(tmp_path: Path, untouched: bool) -> None:
    assert words(tmp_path, untouched=untouched) == []
    assert list(tmp_path.iterdir()) == []


# The writer.


async def test_what_all_parts_have_is_written_together_when_the_first_wants_it(
    database: Database, tmp_path: Path, autojump_clock: MockClock
) -> None:
    one, other = Words(), Words()
    database.add(one)
    database.add(other)
    async with writing(database):
        began = trio.current_time()
        other.waiting.append("other")
        database.wake(within=9.0)
        one.waiting.append("one")
        database.wake(within=5.0)
        await trio.sleep(5)
        await settled(one, 1)
        await settled(other, 1)

    assert one.taken_at == other.taken_at == [began + 5]
    assert words(tmp_path) == [("one",), ("other",)]
    assert (one.settled, other.settled) == (["written"], ["written"])


async def test_between_two_writes_there_is_a_gap_unless_a_caller_waits(
    database: Database, autojump_clock: MockClock
) -> None:
    part = Words()
    database.add(part)
    async with writing(database):
        await trio.sleep(1)
        part.waiting.append("one")
        database.wake()
        await settled(part, 1)
        part.waiting.append("two")
        database.wake()
        await trio.sleep(GAP_SECONDS)
        await settled(part, 2)
        part.waiting.append("three")
        await database.wait_write()

    assert part.taken_at[1] - part.settled_at[0] == pytest.approx(GAP_SECONDS)
    assert part.taken_at[2] - part.settled_at[1] == 0


async def test_one_part_that_cannot_be_written_does_not_keep_the_others_back(
    database: Database, tmp_path: Path
) -> None:
    fill(tmp_path, "large")
    one, other = Words(["large"]), Words(["small"])
    database.add(one)
    database.add(other)
    async with writing(database):
        await database.wait_write()

    assert (one.settled, other.settled) == (["disk full"], ["written"])
    assert words(tmp_path) == [("small",)]


async def test_where_there_is_no_writer_no_caller_waits(database: Database) -> None:
    with trio.fail_after(0.1):
        await database.wait_write()


async def test_a_caller_stops_waiting_when_the_writer_ends(tmp_path: Path) -> None:
    with slow(tmp_path) as database:
        part = Words()
        database.add(part)
        async with trio.open_nursery() as waiting, writing(database):
            part.waiting.append("word")
            waiting.start_soon(database.wait_write)
            await wait_all_tasks_blocked()
            database.go.set()


async def test_a_part_that_leaves_is_written_once_more_and_then_no_more(tmp_path: Path) -> None:
    with slow(tmp_path) as database:
        part = Words(["first"])
        database.add(part)
        async with writing(database):  # its first write is under way
            part.waiting.append("last")
            async with trio.open_nursery() as leaving:
                leaving.start_soon(database.leave, part)
                await wait_all_tasks_blocked()
                early = list(part.settled)
                database.go.set()
            part.waiting.append("too late")
            await database.wait_write()
            await database.leave(part)
        database.flush()

        assert early == []
        assert words(tmp_path) == [("first",), ("last",)]


def test_what_is_left_at_the_end_is_written(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        database.add(Words(["last"]))

    assert words(tmp_path) == [("last",)]


@contextmanager
def slow(home: Path) -> Iterator[SlowDatabase]:
    with opened(home):
        pass
    with closing(SlowDatabase(home / DATABASE_NAME)) as database:
        yield database
