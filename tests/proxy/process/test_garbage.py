"""The cycle collector of this process, which the test puts back as it was."""

import gc
from collections.abc import Iterator

import pytest

from proxy.process.serve import YOUNG_OBJECTS, collect_less_often


@pytest.fixture
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_as_before")
def test_existing_objects_are_exempt_from_collection_and_new_ones_are_looked_at_seldom() -> None:
    _, *older = gc.get_threshold()

    collect_less_often()

    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (YOUNG_OBJECTS, *older)
