"""`turnlane log`: one line for each record, as wide as the terminal has room for."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from proxy.cli.common import print_json
from proxy.home.lock import holder
from proxy.journal.record import Outcome, TurnRecord

FOLLOW_SECONDS: Final = 0.5
WHOLE_COLUMNS: Final = 180
"""From here on each record is there with all that is kept of it; so it is in a pipe."""
_WHOLE: Final = (
    ("time", 19),
    ("transport", 9),
    ("outcome", 38),
    ("model", 14),
    ("lane", 8),
    ("root", 8),
    ("kind", 11),
    ("tries", 5),
    ("first ms", 8),
    ("total ms", 8),
    ("in", 7),
    ("cached", 7),
    ("out", 6),
    ("account", 0),
)
_SHORT: Final = (("time", 12), ("outcome", 17), ("model", 9), ("total", 6), ("in/cached/out", 13))
_ACCOUNT: Final = "account"
NARROWEST: Final = 80
_ROUTE: Final = 24
"""Characters of an account with how a turn came to it; what is left beyond goes to the outcome."""

Cells = Sequence[str]


def show_log(
    home: Path,
    *,
    lines: int,
    follow: bool,
    as_json: bool,
    columns: int | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Print the newest records, oldest first; with `follow`, also those that come after, until
    interrupted. `columns` is the width of the terminal, if it is one."""
    from proxy.journal.store import after, newest

    write = print_json if as_json else _text_line(columns)
    last = 0
    held = holder(home) is not None
    for number, record in newest(home, lines, untouched=not held):
        write(record)
        last = number
    try:
        while follow:
            pause(FOLLOW_SECONDS)
            before, held = held, holder(home) is not None
            if not (before or held):  # no process has written since the last look
                continue
            for number, record in after(home, last, untouched=not held):
                write(record)
                last = number
    except KeyboardInterrupt:
        pass
    return 0


def _text_line(columns: int | None) -> Callable[[TurnRecord], None]:
    titles, line = log_lines(columns)
    typer.echo(titles)
    return lambda record: typer.echo(line(record))


def log_lines(columns: int | None) -> tuple[str, Callable[[TurnRecord], str]]:
    """Return the line of titles, and a function that turns a record into a line.

    `columns` is the width of the terminal; with None, lines have no limit.
    """
    if columns is None or columns >= WHOLE_COLUMNS:
        widths = [width for _, width in _WHOLE]
        titles = [title for title, _ in _WHOLE]
        return _line(titles, widths), lambda record: _line(_whole(record), widths)
    widths = [width for _, width in _SHORT]
    left = max(columns, NARROWEST) - sum(widths) - len(widths)
    wider = max(0, min(13, left - _ROUTE))
    widths = [widths[0], widths[1] + wider, *widths[2:], left - wider]
    titles = [*(title for title, _ in _SHORT), _ACCOUNT]
    return _line(titles, widths), lambda record: _line(_short(record), widths)


def _line(cells: Cells, widths: Sequence[int]) -> str:
    """A last cell without a width is as long as it is."""
    parts = [
        cell[:width].ljust(width) if width else cell
        for cell, width in zip(cells, widths, strict=True)
    ]
    return " ".join(parts).rstrip()


def _whole(record: TurnRecord) -> Cells:
    ended = record.outcome.value if record.refusal is None else f"refused {record.refusal}"
    usage = record.usage
    return (
        when(record.wall),
        record.transport,
        ended,
        record.model or "-",
        record.lane or "-",
        record.root or "-",
        _kind(record),
        str(record.attempts),
        _number(record.first_event_ms),
        _number(record.total_ms),
        _number(usage.input_tokens),
        _number(usage.cached_tokens),
        _number(usage.output_tokens),
        _account(record),
    )


def _short(record: TurnRecord) -> Cells:
    """Return the cells of a narrow line: a refusal by its name, any other ending with its status if
    that is not 200. What is unknown stays blank."""
    usage = record.usage
    ended = record.refusal or record.outcome.value
    if record.refusal is None and record.status not in (None, 200):
        ended = f"{record.status} {ended}"
    tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return (
        _local(record.wall).strftime("%d %b %H:%M"),
        ended,
        record.model or "",
        _seconds(record.total_ms / 1000),
        "/".join(map(_thousands, tokens)) if any(x is not None for x in tokens) else "",
        _account(record),
    )


def _account(record: TurnRecord) -> str:
    """Return the account, with how the turn came to it unless its thread is bound there."""
    if record.outcome is Outcome.CHANGED:
        return f"{record.account or '-'} {record.reason}"
    if record.move is None or record.reason == "bound":
        return record.account or ""
    return f"{record.account or '-'} {record.move}/{record.reason}"


def _kind(record: TurnRecord) -> str:
    if record.lane is None and record.root is None:
        return "-"
    return "worker" if record.worker else "interactive"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _thousands(count: int | None) -> str:
    return _number(count) if count is None or count < 10_000 else f"{count / 1000:.0f}k"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def when(wall: float) -> str:
    return _local(wall).strftime("%Y-%m-%d %H:%M:%S")


def _local(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC).astimezone()
