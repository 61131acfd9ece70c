"""Screen, pure: an overview as a person reads it in five seconds, in 80 columns.

The first line says whether turnlane serves, the second whether Codex goes through it; below each of
them stands the command that helps, if something is not as it should be.
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
from proxy.account_table import account_table, clock_of, span
from proxy.accounts.pool import AccountStatistics
from proxy.codex.adoption import Adoption, Client, State
from proxy.look.overview import REFUSALS_SHOWN, Overview

TITLE_CELLS: Final = 10
_HERE: Final = frozenset({State.SEEN, State.ADOPTED, State.PENDING})
"""States in which Codex's configuration points at this turnlane."""
_CODEX: Final = {
    State.SEEN: ("goes through turnlane", "bold green"),
    State.ADOPTED: ("goes through turnlane", "bold green"),
    State.PENDING: ("is to be started anew", "bold yellow"),
    State.UNKNOWN: ("not known", "bold yellow"),
    State.NOT_APPLICABLE: ("does not go through turnlane", "bold yellow"),
}

Line = tuple[str, Text]


def screen(
    seen: Overview, zone: tzinfo | None, *, columns: int, blocks: str = "▇▁"
) -> RenderableType:
    """`zone` None is that of this machine; `blocks` as for the table of accounts."""
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
        yield _help(f"kill -9 {seen.held_by}", "ends it; then turnlane serve")
        return
    if running is None:
        yield _line("turnlane", ("not running", "bold red"))
        yield _help("turnlane serve", "starts it")
        return
    process = (f"  pid {running.get('pid')}, up {span(running.get('uptime_seconds', 0))}", "dim")
    if seen.serving:
        yield _line("turnlane", ("serving", "bold green"), f" on {seen.url}", process)
    else:
        yield _line("turnlane", ("not serving", "bold red"), f"  {seen.problem}", process)
    if (version := running.get("version")) != __version__:
        yield _line("", (f"it is version {version}, and this command is {__version__}", "yellow"))
    if draining := running.get("draining"):
        named = ", ".join(str(each["pid"]) for each in draining)
        yield _line("", (f"still ending earlier turns: pid {named}", "yellow"))


def _codex(seen: Overview) -> Iterator[Line]:
    found = seen.routing
    if found.state in _HERE and not seen.serving:
        yield _line("Codex", ("points at turnlane, which does not serve", "bold red"))
        yield _help("turnlane codex off", "lets it work without turnlane")
        return
    yield _line("Codex", _CODEX[found.state], (f"  {_why(found)}", "dim"))
    if found.stale:
        yield _line("", ("older than the routing, restart: ", "yellow"), _named(found.stale))
    if found.unreadable:
        yield _line("", ("cannot be looked into: ", "yellow"), _named(found.unreadable))
    if found.state is State.NOT_APPLICABLE and seen.serving:
        yield _help("turnlane codex on", "connects it")
    if found.state is State.UNKNOWN:
        yield _help("turnlane codex show", "says more")


def _why(found: Adoption) -> str:
    if found.weak:
        return "no Codex runs; the next one will read it"
    if found.state is State.SEEN:
        return "a turn came from it"
    if found.state is State.PENDING:
        return "its open threads go on as before"
    return found.why


def _named(clients: tuple[Client, ...]) -> str:
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
    """A process of another version may not count all that is shown."""
    found = running.get(section)
    return defaultdict(int, found if isinstance(found, dict) else {})


def _hour(seen: Overview, zone: tzinfo | None) -> Iterator[Line]:
    hour = seen.last_hour
    if seen.journal_problem is not None:
        yield _line("last hour", ("not known: ", "bold red"), seen.journal_problem)
        return
    share = hour.cache_share
    cached = () if share is None else (f", {share * 100:.0f} % of the input from the cache",)
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
    yield _line("log", ("turnlane log --follow", "bold"), ("  each turn and refusal", "dim"))
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
        yield Text("its accounts are those of another version: turnlane accounts list")
    else:
        yield account_table(known, seen.now, zone, columns=columns, blocks=blocks)
