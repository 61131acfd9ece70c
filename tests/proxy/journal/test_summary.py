"""The last hour, summed from records; and when a client was last seen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.journal.record import Outcome, Transport, TurnRecord
from proxy.journal.summary import HOUR_SECONDS, LastHour, Past, RefusalCount, past, summed
from proxy.responses.events import TokenUsage

NOW = 1_800_000_000.0
TURN = TurnRecord(
    wall=NOW - 60,
    principal="local",
    transport=Transport.WEBSOCKET,
    outcome=Outcome.COMPLETED,
    lane="a" * 32,
    total_ms=2000.0,
)
REFUSED = replace(TURN, outcome=Outcome.REFUSED, refusal="lane_busy")


def counted(cached: int | None, fresh: int | None) -> TurnRecord:
    return replace(TURN, usage=TokenUsage(input_tokens=fresh, cached_tokens=cached))


def test_without_records_nothing_is_claimed() -> None:
    assert past([], NOW) == Past()
    assert LastHour().cache_share is None


def test_the_share_of_the_cache_is_of_the_input_that_was_counted() -> None:
    hour = summed([counted(90, 100), counted(None, 20), counted(None, None)], NOW)

    assert (hour.turns, hour.cached_tokens, hour.input_tokens) == (3, 90, 120)
    assert hour.cache_share == 0.75


def test_what_is_older_than_an_hour_does_not_count() -> None:
    old = replace(REFUSED, wall=NOW - HOUR_SECONDS)

    assert summed([old, replace(old, refusal=None, outcome=Outcome.FAILED)], NOW) == LastHour()


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (Outcome.COMPLETED, 0),
        (Outcome.INCOMPLETE, 0),
        (Outcome.INTERRUPTED, 0),
        (Outcome.REPLACED, 0),
        (Outcome.CLIENT_GONE, 0),
        (Outcome.FAILED, 1),
        (Outcome.UPSTREAM_REFUSED, 1),
        (Outcome.UPSTREAM_FAILED, 1),
        (Outcome.CUT, 1),
        (Outcome.BROKEN, 1),
    ],
)
def test_what_its_client_ended_has_not_failed(outcome: Outcome, failed: int) -> None:
    hour = summed([replace(TURN, outcome=outcome)], NOW)

    assert (hour.turns, hour.failed, len(hour.refusals)) == (1, failed, failed)


def test_a_refusal_is_no_turn_and_the_newest_reason_comes_first() -> None:
    records = [
        replace(REFUSED, wall=NOW - 30),
        replace(REFUSED, refusal="draining", wall=NOW - 20),
        replace(REFUSED, wall=NOW - 10),
    ]

    assert summed(records, NOW) == LastHour(
        refusals=(
            RefusalCount(reason="lane_busy", times=2, last=NOW - 10),
            RefusalCount(reason="draining", times=1, last=NOW - 20),
        )
    )


def test_an_upstream_that_said_no_is_quoted() -> None:
    no = replace(TURN, outcome=Outcome.UPSTREAM_REFUSED, status=429)
    gone = replace(TURN, outcome=Outcome.UPSTREAM_FAILED, wall=NOW - 61)

    assert [each.reason for each in summed([no, gone], NOW).refusals] == [
        "the upstream said 429",
        "upstream failed",
    ]


def test_what_an_operator_did_is_neither() -> None:
    listed = replace(TURN, transport=Transport.CONTROL, outcome=Outcome.LISTED, lane=None)

    assert past([listed], NOW) == Past()


def test_a_client_was_last_seen_when_its_newest_turn_began() -> None:
    records = [
        replace(TURN, wall=NOW - 7200, total_ms=1000.0),
        replace(TURN, wall=NOW - 100, lane=None),
        replace(REFUSED, wall=NOW - 50),
    ]

    assert past(records, NOW).last_turn == NOW - 7201


@given(
    tokens=st.lists(
        st.tuples(*[st.none() | st.integers(0, 10**9)] * 2).map(lambda x: counted(*x)), max_size=8
    )
)
def test_a_share_is_between_nothing_and_all(tokens: list[TurnRecord]) -> None:
    share = summed(tokens, NOW).cache_share

    assert share is None or 0 <= share <= 1
