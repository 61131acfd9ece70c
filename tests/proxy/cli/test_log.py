"""The log on a terminal: what matters of each record fits its width."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.accounts.route import Move
from proxy.cli.log import NARROWEST, log_lines
from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.responses.events import TokenUsage

WALL = 1_800_000_000.0
TURN = TurnRecord(
    wall=WALL,
    principal="local",
    transport=Transport.HTTP,
    outcome=Outcome.COMPLETED,
    model="gpt-5",
    account="work",
    move=Move.REBOUND,
    reason="quota",
    status=200,
    total_ms=12_345.0,
    usage=TokenUsage(input_tokens=123_456, cached_tokens=9_999, output_tokens=None),
)


def line(record: TurnRecord, columns: int | None) -> str:
    return log_lines(columns)[1](record)


def test_eighty_columns_have_what_matters() -> None:
    titles, _ = log_lines(80)

    assert titles.split() == ["time", "outcome", "model", "total", "in/cached/out", "account"]
    assert line(TURN, 80).split()[3:] == [
        *("completed", "gpt-5", "12.3", "s", "123k/9999/?", "work", "rebound/quota")
    ]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (replace(TURN, outcome=Outcome.UPSTREAM_REFUSED, status=403), "403 upstream_refused"),
        (replace(TURN, outcome=Outcome.REFUSED, refusal="accounts_spent"), "accounts_spent"),
        (replace(TURN, outcome=Outcome.CUT, status=None), "cut"),
    ],
)
def test_how_a_turn_ended_stands_there_with_its_status(record: TurnRecord, said: str) -> None:
    assert f" {said} " in line(record, 120)


def test_what_is_not_known_stays_blank_on_a_terminal() -> None:
    record = replace(TURN, model=None, account=None, move=None, usage=TokenUsage())

    assert line(record, 80).split()[3:] == ["completed", "12.3", "s"]
    assert "?" in line(record, None)


def test_a_long_turn_is_counted_in_whole_seconds() -> None:
    assert " 600 s " in line(replace(TURN, total_ms=600_000.0), 80)


@pytest.mark.parametrize("columns", [None, 180, 400])
def test_a_pipe_and_a_wide_terminal_have_everything(columns: int | None) -> None:
    titles, _ = log_lines(columns)

    assert [x in titles for x in ("transport", "lane", "root", "first ms")] == [True] * 4


@pytest.mark.parametrize(
    ("account", "move", "reason", "shown"),
    [
        ("work", Move.REUSED, "bound", "work"),
        ("work", Move.REBOUND, "quota", "work rebound/quota"),
        ("work", Move.NEW, "strategy", "work new/strategy"),
        (None, Move.CLEARED, "paused", "- cleared/paused"),
        ("a" * 40, Move.DETOUR, "trouble", "a" * 40 + " detour/trouble"),
        (None, None, None, ""),
    ],
)
def test_the_log_says_how_a_turn_came_to_its_account(
    account: str | None, move: Move | None, reason: str | None, shown: str
) -> None:
    titles, text = log_lines(None)
    record = replace(TURN, account=account, move=move, reason=reason)

    assert text(record)[titles.index("account") :] == shown


@given(
    columns=st.integers(1, 179),
    names=st.tuples(*[st.text("abc-", min_size=1, max_size=99)] * 3),
    count=st.integers(0, 2_000_000),
)
def test_no_line_is_longer_than_the_terminal(
    columns: int, names: tuple[str, str, str], count: int
) -> None:
    model, account, refusal = names
    usage = TokenUsage(input_tokens=count, cached_tokens=count, output_tokens=count)
    record = replace(TURN, model=model, account=account, refusal=refusal, usage=usage)

    assert len(line(record, columns)) <= max(columns, NARROWEST)
    assert len(log_lines(columns)[0]) <= max(columns, NARROWEST)
