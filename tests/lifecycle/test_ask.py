"""An ask says who wishes to run, and cannot say nonsense."""

import pytest

from lifecycle import LANE_ID_BYTES, Ask, LaneId
from tests.lifecycle.asks import PRINCIPAL, ask, lane


def test_a_lane_retains_its_id_and_that_has_one_size() -> None:
    assert len(lane(1).encode()) == LANE_ID_BYTES == 32


@pytest.mark.parametrize("lane_id", ["", "a" * 31, "a" * 33, "a" * 4096])
def test_a_lane_id_of_another_size_is_not_an_ask(lane_id: str) -> None:
    with pytest.raises(ValueError, match="a lane id has 32 characters"):
        Ask(principal=PRINCIPAL, lane=LaneId(lane_id))


def test_a_body_cannot_be_smaller_than_nothing() -> None:
    with pytest.raises(ValueError, match="body_bytes cannot be negative"):
        ask(1, body_bytes=-1)


def test_a_child_that_counts_has_a_thread() -> None:
    with pytest.raises(ValueError, match="a child that counts has a thread"):
        Ask(principal=PRINCIPAL, worker=True, counted=True)
