"""Garbage: the collector of this process is told to look less, and told to forget it again."""

import gc
from collections.abc import Iterator

import pytest

from proxy.process.serve import YOUNG_OBJECTS, look_less_often


@pytest.fixture
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_as_before")
def test_what_is_there_is_looked_at_no_more_and_what_comes_later_seldom() -> None:
    _, *older = gc.get_threshold()

    look_less_often()

    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (YOUNG_OBJECTS, *older)
