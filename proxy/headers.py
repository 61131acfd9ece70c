"""Header fields, pure: finding one, and reading values that several packages need.

`proxy.responses.forwarding` says which headers travel.
"""

import ipaddress
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
    """Return the first value of a header, trimmed, or None. `name` is in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return None


def retry_after(headers: Iterable[tuple[bytes, bytes]], status: int, wall: float) -> int | None:
    """Return the upstream's advice in whole seconds >= 1, or None if it gave none.

    Codex reads `retry-after` alone, ignores fractions, and takes 0 for "at once". So fractions are
    rounded up, and `retry-after-ms` and (on a 429) the soonest `x-ratelimit-reset-*` count too.
    `wall` is seconds since the epoch: `retry-after` may be a date (RFC 9110 section 10.2.3).
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
    """Return the seconds of `retry-after`, else of `retry-after-ms`, unrounded."""
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
        # RFC 9110 section 5.6.7: HTTP dates are UTC, also in the asctime form, which names no zone.
        return max(0.0, when.replace(tzinfo=when.tzinfo or UTC).timestamp() - wall)
    except (ValueError, OverflowError):
        return None


def number(text: str | None) -> float | None:
    """Return a header's value as a finite number >= 0, or None if it is not one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _duration(text: str) -> float | None:
    """Return the seconds of `6m0s`, `20ms`, `1.5s` or `7`, as in `x-ratelimit-reset-*`."""
    plain = number(text)
    if plain is not None:
        return plain
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * dict(_SECONDS)[unit] for number, unit in parts)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, without a port, can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
