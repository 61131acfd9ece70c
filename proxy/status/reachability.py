"""Whether an upstream answers at all, and how far this machine's clock is from its `Date`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final

from proxy.upstream.blocking import get

REACH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """`clock_off_seconds`: how far this machine's clock is ahead of the upstream's, if it sent a
    `Date` header."""

    problem: str | None = None
    seconds: float = 0.0
    clock_off_seconds: float | None = None


def reach(url: str, wall: Callable[[], float] = time.time) -> Reached:
    """Send one request without a credential. Any answer counts, a refusal too."""
    try:
        answer = get(url, REACH_SECONDS)
    except (OSError, HTTPException, ValueError) as error:
        return Reached(problem=str(error) or type(error).__name__)
    return Reached(
        seconds=answer.seconds,
        clock_off_seconds=_clock_off(answer.headers["date"], wall()),
    )


def _clock_off(date: str | None, now: float) -> float | None:
    if date is None:
        return None
    try:
        said = parsedate_to_datetime(date)
        return now - (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
