"""One stream of bytes, cut anywhere: what comes out must not depend on it."""

from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

cuts: Final = st.sets(st.integers(min_value=0, max_value=400), max_size=12)
"""Where to cut."""


def pieces(stream: bytes, at: set[int]) -> list[bytes]:
    """Nothing is lost and no piece is empty, whatever `at` says."""
    places = [0, *sorted(place for place in at if 0 < place < len(stream)), len(stream)]
    return [stream[a:b] for a, b in pairwise(places) if a < b]
