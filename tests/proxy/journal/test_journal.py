"""Journal: what is kept of a turn, what is counted, and what is written to the log."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from lifecycle import Ask, LaneId, PrincipalId, RootId
from proxy.accounts.route import Move
from proxy.database import Database
from proxy.journal.journal import (
    FLUSH_SECONDS,
    MODEL_CHARACTERS,
    MOST_QUEUED,
    RECENT_RECORDS,
    Journal,
    open_journal,
)
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.store import newest
from proxy.journal.summary import HOUR_SECONDS
from proxy.refusal import Reason
from proxy.responses.events import TokenUsage
from tests.testkit.home import journal as kept_in
from tests.testkit.home import writing
from tests.testkit.runtime import WALL

PLAIN = TurnRecord(wall=5.0, principal="local", transport=Transport.HTTP, outcome=Outcome.COMPLETED)


def record(**changed: Any) -> TurnRecord:
    return replace(PLAIN, **changed)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def test_only_the_last_records_are_kept_and_all_are_counted(journal: Journal) -> None:
    for number in range(RECENT_RECORDS + 7):
        journal.record(record(wall=float(number)))

    assert len(journal.recent) == RECENT_RECORDS
    assert journal.recent[0].wall == 7.0
    assert journal.statistics().outcomes == {"completed": RECENT_RECORDS + 7}


def test_outcomes_and_refusals_are_counted_apart(journal: Journal) -> None:
    journal.record(record())
    journal.record(record(outcome=Outcome.CUT))
    journal.record(record(outcome=Outcome.REFUSED, refusal="lane_busy"))
    journal.refused(Reason.LANE_BUSY, transport=Transport.WEBSOCKET, wall=6.0)
    journal.refused(Reason.FOREIGN_ORIGIN, transport=Transport.HTTP, wall=7.0, principal="a key")

    assert journal.statistics().outcomes == {"completed": 1, "cut": 1, "refused": 3}
    assert journal.statistics().refusals == {"lane_busy": 2, "foreign_origin": 1}
    assert journal.recent[-1] == record(
        wall=7.0, principal="a key", outcome=Outcome.REFUSED, refusal="foreign_origin"
    )


UNKNOWN = "tokens in ?, cached ?, out ?"
CLEARED = {"move": Move.CLEARED, "reason": "quota"}


@pytest.mark.parametrize(
    ("noted", "line"),
    [
        (
            record(
                transport=Transport.WEBSOCKET,
                model="gpt-5.5",
                lane="0123456789abcdef" * 2,
                total_ms=1234.5,
                usage=TokenUsage(input_tokens=100, cached_tokens=0, output_tokens=7),
            ),
            "websocket completed gpt-5.5 01234567 1234 ms, tokens in 100, cached 0, out 7",
        ),
        (record(outcome=Outcome.CUT, total_ms=0.6), f"http cut - anonymous 1 ms, {UNKNOWN}"),
        (
            record(outcome=Outcome.UPSTREAM_REFUSED, status=401),
            f"http upstream_refused 401 - anonymous 0 ms, {UNKNOWN}",
        ),
        (
            record(account="work", move=Move.REBOUND, reason="quota"),
            f"http completed - anonymous 0 ms, {UNKNOWN}, account work rebound/quota",
        ),
        (
            record(outcome=Outcome.REFUSED, refusal="accounts_spent", **CLEARED),
            f"http refused: accounts_spent - anonymous 0 ms, {UNKNOWN}, account - cleared/quota",
        ),
    ],
    ids=["whole", "unknown is not nought", "refused upstream", "on an account", "refused"],
)
def test_a_record_is_one_line_of_the_log(
    noted: TurnRecord, line: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "proxy"):
        journal.record(noted)

    assert caplog.messages == [line]


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("gpt-5.5\nhttp completed forged", "gpt-5.5?http completed forged"),
        ("\x1b[31mred\r\0", "?[31mred??"),
        ("modèle", "modèle"),
        ("x" * 10**6, "x" * MODEL_CHARACTERS),
        ("", ""),
    ],
    ids=lambda text: repr(text)[:12],
)
def test_a_model_cannot_write_lines_of_its_own_nor_fill_the_memory(
    model: str, kept: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "proxy"):
        journal.record(record(model=model))

    assert journal.recent[0].model == kept
    assert len(caplog.messages[0].splitlines()) == 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with kept_in(tmp_path) as database:
        yield database


async def test_what_was_recorded_is_written_within_half_a_second(
    database: Database, tmp_path: Path, autojump_clock: MockClock
) -> None:
    journal = Journal(database)
    async with writing(database):
        began = trio.current_time()
        journal.record(record())
        journal.record(record(outcome=Outcome.CUT))
        await trio.sleep(FLUSH_SECONDS - 0.01)
        before = newest(tmp_path, 9), journal.statistics().queued
        await trio.sleep_until(began + FLUSH_SECONDS)
        while journal.statistics().queued:
            await trio.lowlevel.checkpoint()

    assert before == ([], 2)
    assert [each for _, each in newest(tmp_path, 9)] == list(journal.recent)
    assert journal.statistics().lost == 0
    assert FLUSH_SECONDS <= 0.5


def test_a_journal_begins_with_the_records_of_the_last_hour(tmp_path: Path) -> None:
    old, new = record(wall=WALL - HOUR_SECONDS), record(wall=WALL - HOUR_SECONDS + 1)
    with kept_in(tmp_path, old, new) as database:
        journal = open_journal(database, WALL)

    assert list(journal.recent) == [new]
    assert journal.statistics().outcomes == {}


def test_a_full_disk_costs_records_and_says_so(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(database)
    journal.record(record())
    database.execute([("ALTER TABLE turns RENAME TO away", [()])])
    database.flush()
    database.execute([("ALTER TABLE away RENAME TO turns", [()])])
    journal.record(record(wall=9.0))
    database.flush()
    database.flush()

    assert [each.wall for _, each in newest(tmp_path, 9)] == [9.0]
    assert journal.statistics().lost == 1
    assert journal.statistics().outcomes == {"completed": 2}
    assert "1 records are lost: no such table" in caplog.text


def test_a_disk_that_cannot_keep_up_fills_no_memory(database: Database) -> None:
    journal = Journal(database)
    for _ in range(MOST_QUEUED + 3):
        journal.record(record())

    assert (journal.statistics().queued, journal.statistics().lost) == (MOST_QUEUED, 3)


def test_a_refusal_of_an_ask_names_its_lane_and_the_root_that_would_have_paid(
    journal: Journal,
) -> None:
    ask = Ask(principal=PrincipalId("key-1"), lane=LaneId("0" * 32), worker=True)
    journal.refused(
        Reason.LANE_BUSY,
        transport=Transport.WEBSOCKET,
        wall=7.0,
        principal="key-1",
        ask=ask,
        root=RootId("1" * 32),
    )

    kept = journal.recent[0]
    assert (kept.lane, kept.root, kept.worker) == ("0" * 32, "1" * 32, True)
