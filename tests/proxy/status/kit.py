"""Overviews, check contexts and control sockets made of fakes, healthy except where a test says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from proxy import __version__
from proxy.codex.adoption import Adoption, State
from proxy.codex.destination import Course, Destination
from proxy.config.load import load
from proxy.journal.summary import LastHour
from proxy.status.finding import CheckContext, Finding, Level, Reached
from proxy.status.overview import Overview
from proxy.status.processes import Neighbour
from proxy.status.render import screen

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
URL = "http://127.0.0.1:10110"
ADOPTED = Adoption(state=State.ADOPTED, why="every Codex process started after Codex was connected")
HERE = Course(way=Destination.HERE, said="goes through turnlane")
RUNNING: Mapping[str, Any] = {
    "service": "turnlane",
    "version": __version__,
    "pid": 7,
    "uptime_seconds": 75.0,
    "state": "ready",
    "lanes": {"active": 12, "peak": 31, "limit": 64},
    "turns": {"active": 13, "limit": 256},
    "websockets": {"active": 14},
    "memory": {"held_bytes": 15 * 2**20},
    "workflows": {
        "active": 2,
        "tracked": 5,
        "refused": 6,
        "busiest": [
            {
                "root": "abcdef0123456789",
                "active": 8,
                "children": 7,
                "worker_sends": 20,
                "interactive_sends": 3,
            }
        ],
    },
    "accounts": [],
}


def seen(running: Mapping[str, Any] | None = RUNNING, **changes: Any) -> Overview:
    """What is seen of a turnlane; without `running` of a home where none runs."""
    plain: dict[str, Any] = {
        "home": Path("/home/user/turnlane"),
        "now": NOW,
        "url": None if running is None else URL,
        "upstream": None,
        "running": running,
        "held_by": None,
        "problem": "no turnlane runs" if running is None else None,
        "hindrance": None,
        "routing": ADOPTED,
        "course": HERE,
        "last_hour": LastHour(),
        "journal_problem": None,
    }
    return Overview(**{**plain, **changes})


def rendered(overview: Overview, columns: int = 80, blocks: str = "▇▁") -> list[str]:
    console = Console(file=StringIO(), width=columns, color_system=None)
    console.print(screen(overview, UTC, columns=columns, blocks=blocks))
    output: StringIO = console.file  # type: ignore[assignment]
    return [line.rstrip() for line in output.getvalue().splitlines()]


def patient(home: Path, **changes: Any) -> CheckContext:
    """Nothing is wrong with it: a turnlane serves, alone, with an upstream that answers."""
    plain: dict[str, Any] = {
        "home": home,
        "file": None,
        "environment": {"CODEX_HOME": str(home.with_name("codex"))},
        "config": load(None, {"TURNLANE_HOME": str(home)}, {}),
        "seen": seen(),
        "most_files": None,
        "listener": lambda _host, _port: None,
        "neighbours": lambda: [Neighbour(pid=7)],
        "reach": lambda _url: Reached(seconds=0.1, clock_off_seconds=0.0),
    }
    return CheckContext(**{**plain, **changes})


def bad(findings: Iterator[Finding], about: str) -> list[tuple[Level, str, str | None]]:
    """What is not good about something."""
    return [(x.level, x.said, x.mend) for x in findings if x.about == about and x.level != "good"]


def told(findings: Iterable[Finding], about: str | None = None) -> list[str]:
    """Findings as lines of a snapshot, those about one thing or all of them."""
    return [
        f"{x.level}: {x.said}" + ("" if x.mend is None else f"\n  -> {x.mend}")
        for x in findings
        if about in {None, x.about}
    ]
