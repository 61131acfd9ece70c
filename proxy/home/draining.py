"""Drains: which processes of a home have handed it over and still finish their turns.

Each has a file there, named for its pid, on which it holds an flock. A file without a lock was left
by a process that was killed, and counts for nothing.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "draining-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`since`: seconds since the epoch."""

    pid: int
    since: float


@contextmanager
def noted(home: Path, pid: int) -> Iterator[None]:
    """Show for the block that this process drains."""
    path = home / f"{PREFIX}{pid}"
    note = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(note, fcntl.LOCK_EX)
        os.utime(note)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(note)


def drains(home: Path) -> list[Drain]:
    """Return those that go on now; changes nothing."""
    return [drain for path in _notes(home) if (drain := _live(path)) is not None]


def sweep(home: Path) -> None:
    """Remove what killed processes have left. The caller holds the home's lock."""
    for path in _notes(home):
        if _live(path) is None:
            path.unlink(missing_ok=True)


def _notes(home: Path) -> list[Path]:
    found = home.glob(f"{PREFIX}*")
    return sorted(path for path in found if path.name.removeprefix(PREFIX).isdecimal())


def _live(path: Path) -> Drain | None:
    try:
        note = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # its process has ended meanwhile
        return None
    try:
        fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = int(path.name.removeprefix(PREFIX))
        return Drain(pid=pid, since=os.fstat(note).st_mtime)
    finally:
        os.close(note)
    return None
