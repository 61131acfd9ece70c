"""Memory over many turns of fresh threads, and with full transcripts."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from harness.bench import load, meter, targets
from harness.child import python, with_path

EVENTS = 10
SESSIONS = 64
TURNS = 16
"""Turns of each session; 1,024 together."""
LOADS = 20
KB = 600


@dataclass(frozen=True, slots=True)
class MemoryFigure:
    """Resident memory after so many turns, and what of it is its clients' own bytes."""

    what: str
    turns: int
    rss_mb: float
    held_mb: float = 0.0


def measured() -> Iterator[MemoryFigure]:
    for transport in ("http", "ws"):
        with _turnlane() as target:
            yield MemoryFigure(f"{transport}, at the start", 0, meter.rss_mb(target.pid))
            for number in range(1, LOADS + 1):
                with _held(target.port, transport, TURNS, kb=8):
                    pass
                if number in (1, LOADS // 2, LOADS):
                    turns = number * SESSIONS * TURNS
                    yield MemoryFigure(
                        f"{transport}, fresh threads", turns, meter.rss_mb(target.pid)
                    )
    with _turnlane() as target, _held(target.port, "ws", 2, KB):
        held_mb = SESSIONS * len(load.body_of(targets.TURNLANE.model, KB)) / 2**20
        what = f"{SESSIONS} transcripts of {KB} kB, idle"
        yield MemoryFigure(what, SESSIONS * 2, meter.rss_mb(target.pid), held_mb)


def table(found: Iterable[MemoryFigure]) -> Table:
    shown = Table("", "turns", "RSS MB", "beyond the clients' bytes")
    for each in found:
        beyond = f"{each.rss_mb - each.held_mb:.0f}"
        shown.add_row(each.what, str(each.turns), f"{each.rss_mb:.0f}", beyond)
    return shown


@contextmanager
def _turnlane() -> Iterator[targets.Running]:
    with (
        TemporaryDirectory() as folder,
        targets.upstream(EVENTS, 0) as port,
        targets.running(targets.TURNLANE, port, Path(folder) / "home") as target,
    ):
        yield target


@contextmanager
def _held(port: int, transport: str, turns: int, kb: int) -> Iterator[None]:
    """The turns of as many sessions are over, their connections still open."""
    arguments = [transport, str(port), f"--sessions={SESSIONS}", f"--turns={turns}", f"--kb={kb}"]
    command = python("harness.bench.load", *arguments, "--hold")
    pipe, environment = subprocess.PIPE, with_path(os.environ)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as clients:
        assert clients.stdout is not None
        seen = json.loads(clients.stdout.readline())
        if seen["errors"]:
            raise SystemExit(f"{transport}: {seen['errors'][0]}")
        yield
        clients.communicate()
