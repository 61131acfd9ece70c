"""The past of a home: asked of the process that runs, else read, and no file is changed."""

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from proxy.control.history import past_of, past_on_disk
from proxy.database import DATABASE_NAME
from proxy.errors import ConfigError
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import LastHour, Past
from tests.proxy.status.kit import answering
from tests.testkit.home import journal
from tests.testkit.users import as_somebody

NOW = 1_800_000_000.0
TURN = TurnRecord(
    wall=NOW - 1,
    principal="local",
    transport=Transport.HTTP,
    outcome=Outcome.COMPLETED,
    lane="a" * 32,
)
KNOWN = Past(hour=LastHour(turns=1), last_turn=NOW - 1)


def files(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(home.iterdir())
    }


def test_where_nothing_was_nothing_is_made(tmp_path: Path) -> None:
    assert past_of(tmp_path / "home", NOW) == Past()
    assert not (tmp_path / "home").exists()


def test_one_that_runs_is_asked(tmp_path: Path) -> None:
    with answering(tmp_path, {"past": {"past": msgspec.to_builtins(KNOWN)}}):
        assert past_of(tmp_path, NOW) == KNOWN


@pytest.mark.parametrize("said", [{}, {"error": "unknown command"}, {"past": {"hour": 1}}])
def test_one_that_does_not_know_is_as_none(said: dict[str, object], tmp_path: Path) -> None:
    with journal(tmp_path, TURN):
        pass
    with answering(tmp_path, {"past": said}):
        assert past_of(tmp_path, NOW) == KNOWN


def test_a_journal_at_rest_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    with journal(tmp_path, TURN):
        pass
    before = files(tmp_path)

    assert past_on_disk(tmp_path, NOW) == KNOWN
    assert files(tmp_path) == before
    assert list(before) == [DATABASE_NAME]


def test_what_a_killed_process_left_beside_its_journal_counts_and_stays(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    with journal(tmp_path, TURN, replace(TURN, wall=NOW - 2)):
        for path in tmp_path.glob(f"{DATABASE_NAME}*"):
            shutil.copy(path, killed)
    before = files(killed)

    assert past_on_disk(killed, NOW).hour.turns == 2
    assert files(killed) == before
    assert f"{DATABASE_NAME}-wal" in before


def test_a_journal_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"no journal at all, but long enough to be looked into")

    with pytest.raises(ConfigError, match="not a database"):
        past_on_disk(tmp_path, NOW)


def test_a_journal_that_may_not_be_read_is_said() -> None:
    with as_somebody() as home:
        (home / DATABASE_NAME).touch(mode=0o000)

        with pytest.raises(ConfigError):
            past_on_disk(home, NOW)


def test_a_log_without_its_journal_is_said(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).mkdir()
    (tmp_path / f"{DATABASE_NAME}-wal").touch()

    with pytest.raises(ConfigError, match=DATABASE_NAME):
        past_on_disk(tmp_path, NOW)
