"""Screen, pure: an overview as a person reads it in five seconds, in 80 columns."""

from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from proxy.account_table import account_table, clock_of, span
from proxy.accounts.pool import AccountStatistics
from proxy.codex.adoption import Adoption, State
from proxy.look.overview import REFUSALS_SHOWN, Overview

_TITLE_CELLS: Final = 10
_STYLES: Final = {
    State.SEEN: "green",
    State.ADOPTED: "green",
    State.PENDING: "yellow",
    State.UNKNOWN: "yellow",
    State.NOT_APPLICABLE: "dim",
}
_STATES: Final = {
    State.SEEN: "goes through turnlane: a turn was seen",
    State.ADOPTED: "goes through turnlane",
    State.PENDING: "is to be restarted",
    State.UNKNOWN: "not known",
    State.NOT_APPLICABLE: "does not go through turnlane",
}


def screen(seen: Overview, zone: tzinfo | None, *, columns: int) -> RenderableType:
    """`zone` None is that of this machine."""
    lines = [
        *_process(seen),
        *_codex(seen),
        *_load(seen.running),
        *_hour(seen, zone),
        *_where(seen),
    ]
    parts: list[RenderableType] = [Text("\n").join(lines)]
    accounts = (seen.running or {}).get("accounts", [])
    if accounts:
        known = msgspec.convert(accounts, list[AccountStatistics], strict=False)
        parts += [Text(), account_table(known, seen.now, zone, columns=columns)]
    return Group(*parts)


def _line(title: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f"{title:<{_TITLE_CELLS}}", "dim"), *parts)


def _process(seen: Overview) -> Iterator[Text]:
    running = seen.running
    if running is None:
        yield _line("turnlane", ("not running", "bold red"), f"  {seen.problem}")
        yield _line("", "turnlane serve", ("  starts it", "dim"))
        return
    up = span(running["uptime_seconds"])
    if seen.problem is not None:
        state = ("not answering", "bold red")
    elif running["state"] == "draining":
        state = ("draining", "bold yellow")
    else:
        state = ("serving", "bold green")
    yield _line("turnlane", state, f" on {seen.url}", (f"  pid {running['pid']}, up {up}", "dim"))
    if seen.problem is not None:
        yield _line("", seen.problem)
    for other in running.get("draining", []):
        yield _line("", (f"pid {other['pid']} still drains its last turns", "yellow"))


def _codex(seen: Overview) -> Iterator[Text]:
    found = seen.routing
    yield _line("Codex", (_STATES[found.state], _STYLES[found.state]), *_doubt(found))
    if found.state is State.NOT_APPLICABLE and seen.serving:
        yield _line("", "turnlane codex on", ("  connects it", "dim"))
    if found.stale:
        named = ", ".join(f"{client.kind} {client.pid}" for client in found.stale)
        yield _line("", ("older than the routing, restart: ", "yellow"), named)
    if not seen.serving and found.state is not State.NOT_APPLICABLE:
        yield _line("", ("turnlane codex off", "bold"), ("  lets it work without turnlane", "dim"))


def _doubt(found: Adoption) -> list[tuple[str, str]]:
    if found.weak:
        return [("  no Codex runs; the next will read it", "dim")]
    if found.state in (State.UNKNOWN, State.NOT_APPLICABLE):
        return [(f"  {found.why}", "dim")]
    return []


def _load(running: Mapping[str, Any] | None) -> Iterator[Text]:
    if running is None:
        return
    turns, lanes, memory = running["turns"], running["lanes"], running["memory"]
    sockets, workflows = running["websockets"], running["workflows"]
    yield _line(
        "now",
        f"{turns['active']} of {turns['limit']} turns, ",
        f"{lanes['active']} of {lanes['limit']} lanes, ",
        f"{sockets['active']} WebSockets, ",
        f"{memory['held_bytes'] / 2**20:.0f} MiB held",
    )
    yield _line(
        "",
        (
            f"peak {lanes['peak']} lanes, {lanes['peak_retained_bytes']} bytes; "
            f"{workflows['tracked']} tasks tracked",
            "dim",
        ),
    )


def _hour(seen: Overview, zone: tzinfo | None) -> Iterator[Text]:
    hour = seen.last_hour
    if seen.journal_problem is not None:
        yield _line("last hour", ("the journal cannot be read: ", "red"), seen.journal_problem)
        return
    share = hour.cache_share
    cached = "" if share is None else f", {share * 100:.0f} % of input tokens from the cache"
    failed = f", {hour.failed} failed" if hour.failed else ""
    yield _line("last hour", f"{hour.turns} turns{failed}{cached}")
    for refusal in hour.refusals[:REFUSALS_SHOWN]:
        at = clock_of(refusal.last, seen.now, zone)
        yield _line("", (f"{refusal.reason}", "yellow"), f" x {refusal.times}", (f", {at}", "dim"))


def _where(seen: Overview) -> Iterator[Text]:
    yield _line("log", "turnlane log --follow", ("  each turn and refusal", "dim"))
    if seen.url is not None:
        yield _line("page", f"{seen.url}/status", ("  all of this as JSON", "dim"))
    yield _line("home", str(seen.home))
