"""Each fault has one way to end, for each transport on which it exists."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recall.faults import (
    End,
    Fault,
    RecallTransport,
    deal,
    ends_allowed,
    kinds,
    sends_allowed,
    statuses_allowed,
)


def test_only_a_websocket_has_a_second_create_to_replace_by() -> None:
    assert set(kinds(RecallTransport.WS)) - set(kinds(RecallTransport.HTTP)) == {Fault.REPLACE}


@given(st.integers(), st.sampled_from(RecallTransport), st.integers(1, 64), st.integers(1, 3))
def test_every_session_is_dealt_faults_and_every_kind_is_dealt(
    seed: int, transport: RecallTransport, sessions: int, each: int
) -> None:
    dealt = deal(Random(seed), transport, sessions, each)

    assert len(dealt) == sessions
    assert all(len(faults) >= each for faults in dealt)
    assert {fault for faults in dealt for fault in faults} == set(kinds(transport))


@pytest.mark.parametrize("fault", [None, *Fault])
def test_a_refusal_has_a_status_and_a_send_has_a_bound(fault: Fault | None) -> None:
    refusable = End.REFUSED in ends_allowed(fault, RecallTransport.WS)

    assert bool(statuses_allowed(fault)) == refusable
    assert 1 in sends_allowed(fault)
    assert max(sends_allowed(fault)) <= 2


def test_after_the_first_event_nothing_is_sent_again() -> None:
    assert list(sends_allowed(Fault.CUT_STREAM)) == [1]
    assert list(sends_allowed(Fault.STATUS_503)) == [1, 2]
    assert list(sends_allowed(Fault.HANG_UP_WAITING)) == [0, 1]
