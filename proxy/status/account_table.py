"""The table of accounts, pure: turns statistics and the time into what an operator reads.

A narrow terminal gets the same columns with shorter words, and below 80 columns fewer of them; the
name and the state are always shown. A cell has several lines, so that a row can be taken in at a
glance.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from proxy.accounts.statistics import AccountStatistics
from proxy.accounts.view import SPENT_PERCENT, Standing, Window

WIDE_COLUMNS: Final = 100
"""From this width on there is room for whole words."""
NARROWEST: Final = 12
BAR_CELLS: Final = 5
WARM_PERCENT: Final = 80.0
_DAY_SECONDS: Final = 86_400.0
_MORE: Final = MappingProxyType({"usage": 50, "now": 62, "last hour": 74})
"""Optional columns, and how wide a terminal has to be for each."""


def account_table(
    accounts: Sequence[AccountStatistics],
    now: float,
    zone: tzinfo | None,
    *,
    columns: int,
    blocks: str = "▇▁",
) -> Table:
    """Return the table.

    `zone` None means the machine's own; `blocks` are a filled and an empty piece of a bar. `now`
    is seconds since the epoch, `columns` the width of the terminal.
    """
    wide = columns >= WIDE_COLUMNS
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), show_edge=False
    )
    for title in ("account", "state"):
        table.add_column(title, overflow="fold", min_width=NARROWEST)
    shown = [title for title, needed in _MORE.items() if columns >= needed]
    for title in shown:
        table.add_column(title, no_wrap=True)
    for position, each in enumerate(accounts):
        if position:
            table.add_row()
        cells = {
            "usage": _usage(each, now, zone, wide=wide, blocks=blocks),
            "now": _now(each),
            "last hour": _hour(each, wide=wide),
        }
        more = [_lines(cells[title]) for title in shown]
        table.add_row(_lines(_name(each)), _lines(_state(each, now, zone)), *more)
    return table


def _lines(parts: Iterable[Text]) -> Text:
    return Text("\n").join(parts)


def _name(each: AccountStatistics) -> list[Text]:
    found = [Text(each.id, "bold"), Text(_kind(each), "dim")]
    if each.models is not None:
        found.append(Text(" ".join(each.models), "dim"))
    if each.same_as:
        found.append(Text(f"same as {', '.join(each.same_as)}", "yellow"))
    return found


def _kind(each: AccountStatistics) -> str:
    kind = "API key" if each.kind == "api_key" else "ChatGPT"
    return kind if each.plan is None else f"{kind} {each.plan}"


def _state(each: AccountStatistics, now: float, zone: tzinfo | None) -> list[Text]:
    found: list[Text] = []
    match each.standing:
        case Standing.READY:
            found.append(Text("ready", "green"))
        case Standing.TROUBLED:
            found.append(Text("troubled", "yellow"))
            found += [Text(each.problem, "yellow")] if each.problem else []
        case Standing.PAUSED:
            found.append(Text("paused", "dim"))
        case Standing.INVALID:
            found.append(Text(each.problem or "credential refused", "red"))
        case Standing.PLAN:
            found.append(Text("not in its plan", "yellow"))
        case Standing.SPENT:
            until = each.resets_at
            clock = "" if until is None else f" until {clock_of(until, now, zone)}"
            found.append(Text(f"spent{clock}", "red"))
            if until is not None:
                found.append(Text(f"in {span(until - now)}", "dim"))
    found += [Text(f"{model} cooling", "yellow") for model in each.cooling_models]
    return found


def _usage(
    each: AccountStatistics, now: float, zone: tzinfo | None, *, wide: bool, blocks: str
) -> list[Text]:
    return [_window(x, now, zone, wide=wide, blocks=blocks) for x in each.windows] or [
        Text("unknown", "dim")
    ]


def _window(window: Window, now: float, zone: tzinfo | None, *, wide: bool, blocks: str) -> Text:
    used = window.used_percent
    filled = min(BAR_CELLS, max(int(used > 0), int(used * BAR_CELLS / SPENT_PERCENT)))
    style = "green" if used < WARM_PERCENT else "yellow" if used < SPENT_PERCENT else "red"
    bar = blocks[0] * filled + blocks[1] * (BAR_CELLS - filled)
    resets = clock_of(window.resets_at, now, zone)
    return Text.assemble(
        (bar, style),
        f" {used:3.0f}{' %' if wide else '%'} {length(window.minutes):>3} ",
        (f"resets {resets}" if wide else resets, "dim"),
    )


def _now(each: AccountStatistics) -> list[Text]:
    return [Text(f"{each.in_flight} running"), Text(f"{each.bindings} bound")]


def _hour(each: AccountStatistics, *, wide: bool) -> list[Text]:
    hour = each.last_hour
    if not hour.turns:
        return [Text("no turns", "dim")]
    turns = "1 turn" if hour.turns == 1 else f"{hour.turns} turns"
    share = hour.cache_share
    cached = [] if share is None else [Text(f"{share * 100:.0f}{' %' if wide else '%'} cached")]
    return [Text(turns), Text(f"{hour.cold_starts} cold"), *cached]


def clock_of(at: float, now: float, zone: tzinfo | None) -> str:
    """Return a time as `14:20` today, `Thu 14:20` within six days, else as a date."""
    there, here = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(now, zone)
    if there.date() == here.date():
        return there.strftime("%H:%M")
    return there.strftime("%a %H:%M" if at - now < 6 * _DAY_SECONDS else "%d %b")


def span(seconds: float) -> str:
    """Return a duration as `45 s`, `12 m`, `2 h 10 m` or `3 d 4 h`."""
    if seconds < 60:
        return f"{max(0, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} m" if hours else f"{minutes} m"


def length(minutes: int | None) -> str:
    """Return the length of a window as `5h` or `7d`."""
    if minutes is None:
        return ""
    hours, rest = divmod(minutes, 60)
    if rest:
        return f"{minutes}m"
    return f"{hours}h" if hours % 24 else f"{hours // 24}d"
