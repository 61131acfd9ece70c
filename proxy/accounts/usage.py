"""Usage, pure: the windows and the plan of an account, as its provider reports them.

The ChatGPT backend does so in the `x-codex-primary-*` and `x-codex-secondary-*` headers of a reply,
in a `codex.rate_limits` event of a stream, and on its usage page. None of this is documented: the
names are those that Codex 0.171 reads. Times are in seconds since the epoch.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proxy.accounts.view import Window
from proxy.headers import Headers, find, number
from proxy.responses.rawjson import UNREADABLE

UNSTATED_RESET_SECONDS: Final = 3600.0
"""How long a window lasts, or a spent quota stays spent, if the provider does not say."""

_WINDOWS: Final = ("primary", "secondary")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """Reported usage of an account; with `credits` it keeps serving when its windows are full."""

    windows: tuple[Window, ...] = ()
    plan: str | None = None
    credits: bool | None = None


def usage_in_headers(headers: Headers, now: float) -> QuotaUsage:
    """Read usage from the headers of a reply."""
    windows = []
    for name in _WINDOWS:
        prefix = f"x-codex-{name}-".encode()
        windows.append(
            _window(
                name,
                number(find(headers, prefix + b"used-percent")),
                number(find(headers, prefix + b"window-minutes")),
                number(find(headers, prefix + b"reset-at")),
                number(find(headers, prefix + b"reset-after-seconds")),
                now,
            )
        )
    return QuotaUsage(
        windows=tuple(window for window in windows if window is not None),
        plan=find(headers, b"x-codex-plan-type"),
        credits=_credits(
            find(headers, b"x-codex-credits-has-credits"),
            find(headers, b"x-codex-credits-unlimited"),
        ),
    )


def usage_in_event(data: bytes, now: float) -> QuotaUsage:
    """Read usage from a `codex.rate_limits` event."""
    return _usage(data, "rate_limits", "{}", now)


def usage_in_report(data: bytes, now: float) -> QuotaUsage:
    """Read usage from the backend's usage page (`/wham/usage`)."""
    return _usage(data, "rate_limit", "{}_window", now)


def _usage(data: bytes, limits_name: str, window_name: str, now: float) -> QuotaUsage:
    try:
        report = as_dict(msgspec.json.decode(data))
    except UNREADABLE:
        return QuotaUsage()
    limits = as_dict(report.get(limits_name))
    credit = as_dict(report.get("credits"))
    windows = (_window_in(name, limits.get(window_name.format(name)), now) for name in _WINDOWS)
    return QuotaUsage(
        windows=tuple(window for window in windows if window is not None),
        plan=as_text(report.get("plan_type")),
        credits=_credits(credit.get("has_credits"), credit.get("unlimited")),
    )


def _window_in(name: str, value: object, now: float) -> Window | None:
    fields = as_dict(value)
    seconds = as_number(fields.get("limit_window_seconds"))
    minutes = as_number(fields.get("window_minutes"))
    return _window(
        name,
        as_number(fields.get("used_percent")),
        minutes if seconds is None else seconds / 60,
        as_number(fields.get("reset_at")),
        as_number(fields.get("reset_after_seconds")),
        now,
    )


def _window(
    name: str,
    used: float | None,
    minutes: float | None,
    resets_at: float | None,
    resets_in: float | None,
    now: float,
) -> Window | None:
    """Return a window; None without a percentage.

    A window that does not say when it resets is believed for its length, or for an hour; none is
    believed for longer than its length.
    """
    if used is None:
        return None
    length = UNSTATED_RESET_SECONDS if not minutes else minutes * 60
    if resets_at is None:
        resets_at = now + (length if resets_in is None else resets_in)
    elif minutes:
        resets_at = min(resets_at, now + length)
    return Window(
        name=name,
        used_percent=used,
        resets_at=resets_at,
        minutes=int(minutes) if minutes else None,
    )


def _credits(has: object, unlimited: object) -> bool | None:
    """Whether there are credits; None if the report does not say."""
    if has is None and unlimited is None:
        return None
    return any(str(value).lower() == "true" for value in (has, unlimited))


def as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return number(str(value))


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
