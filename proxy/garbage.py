"""Garbage: what the cycle collector of a serving process looks at, and how often."""

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""New containers until the collector looks for cycles among them. A turn makes few cycles and many
containers that go by themselves; with Python's 700 a thirtieth of a turn is spent looking, and some
looks stop all streams for 18 ms."""


def look_less_often() -> None:
    """What was imported is not looked at again. Call it once, when the imports are done."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
