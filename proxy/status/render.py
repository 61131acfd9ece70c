"""The status screen, pure: an overview that a person reads in five seconds, in 80 columns.

The first line says whether turnlane serves, the second whether Codex goes through it. If something
is wrong, the command that helps is on the next line.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy import __version__
from proxy.accounts.statistics import AccountStatistics
from proxy.codex.adoption import Adoption, CodexProcess, State
from proxy.codex.destination import Destination
from proxy.status.account_table import account_table, clock_of, span
from proxy.status.overview import REFUSALS_SHOWN, Overview

TITLE_CELLS: Final = 10
_FAILS: Final = frozenset({Destination.NO_KEY, Destination.NOBODY})
"""Codex cannot work."""
_LEADS_AWAY: Final = frozenset({Destination.ANOTHER, Destination.PROVIDER, Destination.ELSEWHERE})
_CODEX: Final = {
    State.SEEN: ("goes through turnlane", "bold green"),
    State.ADOPTED: ("goes through turnlane", "bold green"),
    State.PENDING: ("needs a restart", "bold yellow"),
    State.UNKNOWN: ("unknown", "bold yellow"),
    State.NOT_APPLICABLE: ("unknown", "bold yellow"),
}

Line = tuple[str, Text]


def screen(
    seen: Overview, zone: tzinfo | None, *, columns: int, blocks: str = "▇▁"
) -> RenderableType:
    """Render an overview. `zone` None means the machine's own; `blocks` as for `account_table`."""
    lines = Table.grid()
    lines.add_column(width=TITLE_CELLS, style="dim")
    lines.add_column(overflow="fold")
    for part in (_process(seen), _codex(seen), _load(seen), _hour(seen, zone), _where(seen)):
        for line in part:
            lines.add_row(*line)
    return Group(lines, *_accounts(seen, zone, columns=columns, blocks=blocks))


def _line(title: str, *parts: str | tuple[str, str]) -> Line:
    return title, Text.assemble(*parts)


def _help(command: str, what: str) -> Line:
    return _line("", (command, "bold"), (f"  {what}", "dim"))


def _process(seen: Overview) -> Iterator[Line]:
    running = seen.running
    if running is None and seen.held_by is not None:
        yield _line("turnlane", ("not answering", "bold red"), f"  {seen.problem}")
        yield _help(f"kill -9 {seen.held_by}", "ends it; then run turnlane serve")
        return
    if running is None:
        yield _line("turnlane", ("not running", "bold red"))
        if seen.hindrance is None:
            yield _help("turnlane serve", "starts it")
        else:
            yield _line("", (f"it would not start: {seen.hindrance}", "yellow"))
            yield _help("turnlane doctor", "shows how to fix it")
        return
    process = (f"  pid {running.get('pid')}, up {span(running.get('uptime_seconds', 0))}", "dim")
    if seen.serving:
        yield _line("turnlane", ("serving", "bold green"), f" on {seen.url}", process)
    else:
        yield _line("turnlane", ("not serving", "bold red"), f"  {seen.problem}", process)
    if (version := running.get("version")) != __version__:
        yield _line(
            "", (f"it runs version {version}; this command is version {__version__}", "yellow")
        )
    if draining := running.get("draining"):
        named = ", ".join(str(each["pid"]) for each in draining)
        yield _line("", (f"still finishing earlier turns: pid {named}", "yellow"))


def _codex(seen: Overview) -> Iterator[Line]:
    found, way = seen.routing, seen.course.way
    if way is Destination.HERE and not seen.serving:
        yield _line("Codex", ("points at turnlane, which is not serving", "bold red"))
        yield _help("turnlane codex off", "lets Codex work without turnlane")
        return
    if way in _FAILS:
        yield from _fails(seen)
        return
    if way is Destination.ANOTHER:
        yield _line("Codex", (seen.course.said, "bold yellow"))
        yield _help(
            str(seen.course.mend),
            "to see its status" if seen.url is None else "connects Codex to this one",
        )
        return
    if way in _LEADS_AWAY:
        yield _line(
            "Codex",
            ("does not go through turnlane", "bold yellow"),
            (f"  {seen.course.said}", "dim"),
        )
        if way is Destination.PROVIDER:
            yield _help("turnlane codex show", "shows details")
        elif seen.serving:
            yield _help(str(seen.course.mend), "connects Codex")
        return
    yield _line("Codex", _CODEX[found.state], (f"  {_why(found)}", "dim"))
    if found.stale:
        yield _line(
            "", ("started before Codex was connected, restart: ", "yellow"), _named(found.stale)
        )
    if found.unreadable:
        yield _line("", ("cannot be inspected: ", "yellow"), _named(found.unreadable))
    if found.state is State.UNKNOWN:
        yield _help("turnlane codex show", "shows details")


def _fails(seen: Overview) -> Iterator[Line]:
    yield _line("Codex", (seen.course.said, "bold red"))
    if seen.course.way is Destination.NO_KEY:
        yield _help("turnlane codex show", "prints a provider that sends one")
        return
    if seen.serving:
        yield _help(str(seen.course.mend).partition(",")[0], "connects Codex")
    yield _help("turnlane codex off", "lets Codex work without turnlane")


def _why(found: Adoption) -> str:
    if found.weak:
        return "no Codex is running; the next one will use it"
    if found.state is State.SEEN:
        return "a turn has arrived from it"
    if found.state is State.PENDING:
        return "open threads keep their old settings"
    return found.why


def _named(clients: tuple[CodexProcess, ...]) -> str:
    return ", ".join(f"{client.kind} {client.pid}" for client in clients)


def _load(seen: Overview) -> Iterator[Line]:
    if seen.running is None:
        return
    lanes, turns, sockets, memory, workflows = (
        _counts(seen.running, name)
        for name in ("lanes", "turns", "websockets", "memory", "workflows")
    )
    yield _line(
        "lanes",
        f"{lanes['active']} of {lanes['limit']} ",
        (f"(peak {lanes['peak']})", "dim"),
        f", turns {turns['active']} of {turns['limit']}",
        f", WebSockets {sockets['active']}",
        f", memory {memory['held_bytes'] / 2**20:.0f} MiB",
    )
    yield _line(
        "workflows",
        f"{workflows['active']} active, {workflows['tracked']} tracked, "
        f"{workflows['refused']} refused",
    )
    for found in workflows["busiest"] or ():
        budget = defaultdict(int, found)
        sends = budget["worker_sends"] + budget["interactive_sends"]
        said = f"{budget['active']} running, {budget['children']} children, {_many(sends, 'send')}"
        yield _line("", (f"busiest {budget['root'][:8]}: {said}", "dim"))
        return


def _counts(running: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    """Return one section of the status; a process of another version may lack some counts."""
    found = running.get(section)
    return defaultdict(int, found if isinstance(found, dict) else {})


def _hour(seen: Overview, zone: tzinfo | None) -> Iterator[Line]:
    hour = seen.last_hour
    if seen.journal_problem is not None:
        yield _line("last hour", ("unknown: ", "bold red"), seen.journal_problem)
        return
    share = hour.cache_share
    cached = () if share is None else (f", {share * 100:.0f} % of input tokens cached",)
    failed = ((f", {hour.failed} failed", "yellow"),) if hour.failed else ()
    yield _line("last hour", _many(hour.turns, "turn"), *failed, *cached)
    for number, refusal in enumerate(hour.refusals[:REFUSALS_SHOWN]):
        at = (f"  last {clock_of(refusal.last, seen.now, zone)}", "dim")
        yield _line(
            "" if number else "refused", f"{refusal.times} x ", (refusal.reason, "yellow"), at
        )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _where(seen: Overview) -> Iterator[Line]:
    command = "turnlane log" if seen.running is None else "turnlane log --follow"
    yield _line("log", (command, "bold"), ("  each turn and refusal", "dim"))
    if seen.url is not None:
        yield _line("page", f"{seen.url}/status", ("  all of this as JSON", "dim"))
    yield _line("home", str(seen.home))


def _accounts(
    seen: Overview, zone: tzinfo | None, *, columns: int, blocks: str
) -> Iterator[RenderableType]:
    accounts = (seen.running or {}).get("accounts")
    if not accounts:
        return
    yield Text()
    try:
        known = msgspec.convert(accounts, list[AccountStatistics], strict=False)
    except msgspec.ValidationError:
        yield Text("the accounts are in the format of another version: run turnlane accounts list")
    else:
        yield account_table(known, seen.now, zone, columns=columns, blocks=blocks)
