"""Which headers travel in each direction, pure: allow-lists, and what frames turn into.

Rules for this file: a header that is named in no table does not travel. Names are lower case, as
hypercorn and `proxy.upstream` hand them over.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]
HeaderList = list[tuple[bytes, bytes]]
_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final[tuple[tuple[str, float], ...]] = (
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
)


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The first value of a header, or None."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return None


def retry_after(headers: Iterable[tuple[bytes, bytes]], status: int, wall: float) -> int | None:
    """The upstream's advice in whole seconds >= 1, or None when there is none to give.

    Codex reads `retry-after` alone, ignores fractions, and takes 0 for "at once". So fractions are
    rounded up, and `retry-after-ms` and (on a 429) the soonest `x-ratelimit-reset-*` count too.
    """
    pairs = list(headers)
    seconds = stated_retry_seconds(pairs, wall)
    if seconds is None and status == 429:
        resets = [
            _duration(value.decode("latin-1"))
            for name, value in pairs
            if name.lower().startswith(b"x-ratelimit-reset-")
        ]
        seconds = min((reset for reset in resets if reset is not None), default=None)
    return None if seconds is None else max(1, math.ceil(seconds))


def stated_retry_seconds(headers: Sequence[tuple[bytes, bytes]], wall: float) -> float | None:
    """What `retry-after` says, or else `retry-after-ms`, as it stands."""
    seconds = _advised(find(headers, b"retry-after"), wall)
    if seconds is None:
        milliseconds = number(find(headers, b"retry-after-ms"))
        seconds = None if milliseconds is None else milliseconds / 1000
    return seconds


def _advised(text: str | None, wall: float) -> float | None:
    seconds = number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        when = parsedate_to_datetime(text)
        # A date without a zone is UTC here, as HTTP has it, not the zone of this machine.
        return max(0.0, when.replace(tzinfo=when.tzinfo or UTC).timestamp() - wall)
    except (ValueError, OverflowError):
        return None


def number(text: str | None) -> float | None:
    """A header's value as a number; None for what is none, or none to count with."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _duration(text: str) -> float | None:
    """`6m0s`, `20ms`, `1.5s`, or plain seconds, as `x-ratelimit-reset-*` come."""
    plain = number(text)
    if plain is not None:
        return plain
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * dict(_SECONDS)[unit] for number, unit in parts)
