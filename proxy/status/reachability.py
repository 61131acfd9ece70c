"""Reach: whether an upstream answers at all, and what its clock says."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

REACH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """`clock_off_seconds`: how far this machine's clock is ahead of the upstream's, if it said."""

    problem: str | None = None
    seconds: float = 0.0
    clock_off_seconds: float | None = None


def reach(url: str, wall: Callable[[], float] = time.time) -> Reached:
    """One request without a credential: any answer counts, a refusal too."""
    import httpx  # it takes long to import, and most commands reach no upstream

    began = time.monotonic()
    try:
        answer = httpx.get(url, timeout=REACH_SECONDS, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Reached(problem=str(error) or type(error).__name__)
    return Reached(
        seconds=time.monotonic() - began,
        clock_off_seconds=_clock_off(answer.headers.get("date"), wall()),
    )


def _clock_off(date: str | None, now: float) -> float | None:
    if date is None:
        return None
    try:
        said = parsedate_to_datetime(date)
        return now - (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
