"""The admission numbers: their defaults, and those that cannot work."""

from typing import Any

import pytest

from lifecycle import Limits, Overlap, WorkflowLimits


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


def test_the_defaults_of_a_root_are_those_of_the_documentation() -> None:
    limits = Limits().workflow

    assert (limits.turns, limits.kept, limits.children) == (8, 1, 64)
    assert (limits.sends, limits.sends_kept) == (256, 256)
    assert (limits.window_seconds, limits.slots, limits.roots) == (600, 12, 512)
    assert (limits.hold_seconds, limits.line) == (0, 16)


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"kept": -1}, "kept must leave at least one turn"),
        ({"turns": 3, "kept": 3}, "kept must leave at least one turn"),
        ({"turns": 0, "kept": 0}, "kept must leave at least one turn"),
        ({"children": 0}, "children must be at least 1"),
        ({"sends": 0}, "sends must be at least 1"),
        ({"slots": 0}, "slots must be at least 1"),
        ({"roots": 0}, "roots must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"sends_kept": -1}, "sends_kept cannot be negative"),
        ({"hold_seconds": -0.1}, "hold_seconds cannot be negative"),
        ({"line": -1}, "line cannot be negative"),
        ({"window_seconds": 0}, "window_seconds must be above 0"),
    ],
)
def test_a_number_of_a_root_that_cannot_work_is_refused(
    numbers: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        WorkflowLimits(**numbers)
