"""Drains: which processes of a home have passed it on and still finish their turns.

Each has a file there, on which it holds an flock: a file without one is nobody's.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from proxy.responses.rawjson import UNREADABLE

PREFIX: Final = "draining-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`since`: seconds since the epoch."""

    pid: int
    since: float


@contextmanager
def noted(home: Path, drain: Drain) -> Iterator[None]:
    """Let it be seen for the block that this process drains."""
    path = home / f"{PREFIX}{drain.pid}"
    note = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(note, fcntl.LOCK_EX)
        os.write(note, msgspec.json.encode(drain))
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(note)


def drains(home: Path) -> list[Drain]:
    """Those that go on now; changes nothing."""
    return [drain for path in _notes(home) if (drain := _live(path)) is not None]


def sweep(home: Path) -> None:
    """Remove what was left by processes that were killed. The caller holds the lock."""
    for path in _notes(home):
        if _live(path) is None:
            path.unlink(missing_ok=True)


def _notes(home: Path) -> list[Path]:
    return sorted(home.glob(f"{PREFIX}*"))


def _live(path: Path) -> Drain | None:
    try:
        note = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has ended meanwhile
        return None
    try:
        fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.pread(note, 1024, 0))
    finally:
        os.close(note)
    return None


def _read(text: bytes) -> Drain | None:
    try:
        return msgspec.json.decode(text, type=Drain)
    except UNREADABLE:
        return None
