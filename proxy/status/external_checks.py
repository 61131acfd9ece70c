"""Checks of turnlane's surroundings: other turnlanes, Codex, accounts, upstreams, the clock."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from types import MappingProxyType
from typing import Any, Final

from proxy.codex.adoption import State
from proxy.codex.connect import with_leftover
from proxy.codex.destination import Destination
from proxy.codex.files import Disk
from proxy.codex.reading import CONFIG_NAME, codex_home, read_codex
from proxy.codex.saved import read_note
from proxy.errors import ConfigError, RoutingError
from proxy.status.finding import (
    CheckContext,
    Finding,
    Level,
    Reached,
    editing,
    good,
    specs_of,
    warning,
    wrong,
)
from proxy.status.overview import Overview
from proxy.upstream.blocking import get
from proxy.upstream.url import upstream_url

CLOCK_SECONDS: Final = 60.0
"""With a clock further off than this, tokens expire too early or too late."""
REACH_SECONDS: Final = 5.0

_ACCOUNTS: Final = MappingProxyType(
    {
        "invalid": ("its credential was refused", "test"),
        "paused": ("paused", "resume"),
        "spent": ("its quota is spent; it is used again once that is back", None),
        "troubled": ("its last turns failed", "test"),
        "plan": ("its plan does not include the model", None),
    }
)
"""What is said of an account by its standing, and the `turnlane accounts` command that helps."""


def outside(patient: CheckContext) -> Iterator[Finding]:
    """Check the surroundings; those that need the network come last."""
    yield from _neighbours(patient)
    yield from _codex(patient)
    yield from _accounts(patient)
    yield from _upstreams(patient)


def _neighbours(patient: CheckContext) -> Iterator[Finding]:
    """Look for other turnlanes: each has its own ledger, so limits do not bound them together."""
    found = patient.neighbours()
    if found is None:
        yield warning("others", "the list of processes cannot be read")
        return
    running = patient.seen.running or {}
    ours = {running.get("pid"), *(each["pid"] for each in running.get("draining", []))}
    others = [x for x in found if x.pid not in ours and str(x.pid) != patient.seen.held_by]
    if others:
        named = "; ".join(map(str, others))
        pids = ",".join(str(each.pid) for each in others)
        yield warning(
            "others",
            f"other turnlanes are running, and limits apply to each separately: {named}",
            f"ps -p {pids}",
        )
    else:
        yield good("others", "no other turnlane of this user is running")


def _codex(patient: CheckContext) -> Iterator[Finding]:
    where, seen = codex_home(patient.environment), patient.seen
    if not where.is_dir():
        yield warning("Codex", f"{where} does not exist", "start Codex once, or correct CODEX_HOME")
        return
    reading = read_codex(Disk(), where, seen.url)
    if reading.problem is not None:
        file = where / CONFIG_NAME
        yield wrong("Codex", f"{file}: {reading.problem}", editing(file))
        return
    if reading.profile is not None:
        yield warning(
            "Codex",
            f"profile = {reading.profile!r} is set, and Codex 0.171 refuses to start with it",
            f"remove it from the top level of {where / CONFIG_NAME}",
        )
    for bypass in reading.bypasses:
        yield warning("Codex", bypass, "turnlane codex show")
    try:
        read_note(Disk(), patient.home)
    except RoutingError as error:
        said = with_leftover(Disk(), patient.home, where, error)
        yield wrong(
            "Codex", f"`turnlane codex off` would fail: {error}", str(said).rpartition("; ")[2]
        )
    yield from _course(seen)


def _course(seen: Overview) -> Iterator[Finding]:
    routing, found = seen.routing, seen.course
    if found.way in {Destination.NO_KEY, Destination.NOBODY}:
        yield wrong("Codex", f"it {found.said}", found.mend)
    elif found.way is Destination.PROVIDER:
        return  # already reported as a bypass
    elif found.way in {Destination.ANOTHER, Destination.ELSEWHERE}:
        yield warning("Codex", f"it {found.said}", found.mend)
    elif not seen.serving:
        yield wrong(
            "Codex",
            "it points at turnlane, which is not serving",
            "turnlane serve, or turnlane codex off",
        )
    elif routing.stale:
        pids = " ".join(str(client.pid) for client in routing.stale)
        yield warning("Codex", f"started before Codex was connected: pid {pids}", "restart Codex")
    elif routing.state is State.UNKNOWN:
        yield warning("Codex", routing.why, "turnlane codex show")
    else:
        yield good("Codex", routing.why)


def _accounts(patient: CheckContext) -> Iterator[Finding]:
    accounts: list[dict[str, Any]] = (patient.seen.running or {}).get("accounts", [])
    for each in accounts:
        about, standing = f"account {each['id']}", each["standing"]
        if standing == "ready":
            yield good(about, "ready")
            continue
        said, command = _ACCOUNTS.get(standing, (standing, None))
        yield Finding(
            about=about,
            level=Level.WRONG if standing == "invalid" else Level.WARNING,
            said=said,
            mend=None if command is None else f"turnlane accounts {command} {each['id']}",
        )


def _upstreams(patient: CheckContext) -> Iterator[Finding]:
    for url in _urls(patient):
        reached = patient.reach(url)
        if reached.problem is not None:
            yield wrong(
                "upstream",
                f"{url} cannot be reached: {reached.problem}",
                "check the network, or correct upstream.url",
            )
            continue
        yield good("upstream", f"{url} answers in {reached.seconds * 1000:.0f} ms")
        off = reached.clock_off_seconds
        if off is not None and abs(off) > CLOCK_SECONDS:
            way = "ahead of" if off > 0 else "behind"
            said = f"this machine's clock is {abs(off):.0f} s {way} the upstream's"
            yield wrong("clock", said, "timedatectl set-ntp true")
        elif off is not None:
            yield good("clock", "agrees with the upstream's clock")


def _urls(patient: CheckContext) -> list[str]:
    config = patient.config
    if isinstance(config, ConfigError):
        return []
    common = config.upstream.url if patient.seen.running is None else patient.seen.upstream
    specs = specs_of(patient).values()
    urls = [upstream_url(spec.url, common, chatgpt=spec.kind == "chatgpt") for spec in specs]
    clients_own = [upstream_url(None, common, chatgpt=chatgpt) for chatgpt in (False, True)]
    return list(dict.fromkeys(urls or clients_own))


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
