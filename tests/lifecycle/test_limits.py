"""The admission numbers: their defaults, and those that cannot work."""

from typing import Any

import pytest

from lifecycle import Limits, Overlap


def test_the_defaults_are_those_of_the_documentation() -> None:
    limits = Limits()

    assert (limits.turns, limits.lanes, limits.lanes_kept, limits.websockets) == (256, 64, 8, 256)
    assert limits.memory_bytes == 256 * 1024 * 1024
    assert (limits.overlap, limits.settle_seconds) == (Overlap.REFUSE, 1.0)
    assert limits.client_gone_seconds == 10.0


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"turns": -1}, "turns cannot be negative"),
        ({"websockets": -1}, "websockets cannot be negative"),
        ({"settle_seconds": -0.1}, "settle_seconds cannot be negative"),
        ({"client_gone_seconds": -1.0}, "client_gone_seconds cannot be negative"),
        ({"turns": 0}, "must be at least 1"),
        ({"lanes": 0}, "must be at least 1"),
        ({"memory_bytes": 0}, "must be at least 1"),
        ({"lanes": 8}, "lanes_kept must leave at least one lane"),
        ({"lanes": 8, "lanes_kept": 9}, "lanes_kept must leave at least one lane"),
    ],
)
def test_a_number_that_cannot_work_is_refused(numbers: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Limits(**numbers)


def test_the_smallest_numbers_that_work() -> None:
    limits = Limits(
        turns=1,
        lanes=1,
        lanes_kept=0,
        websockets=0,
        memory_bytes=1,
        settle_seconds=0,
        client_gone_seconds=0,
    )

    assert limits.lanes - limits.lanes_kept == 1
