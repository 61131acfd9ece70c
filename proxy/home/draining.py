"""Draining: which processes have passed the home on and are still finishing their turns.

Each one keeps a mark in the home, a file that it holds a lock on; a file that no process holds was
left by one that was killed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from proxy.files import lock_file, lock_holder, wait_lock
from proxy.responses.rawjson import UNREADABLE

PREFIX: Final = "draining-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`since`: seconds since the epoch."""

    pid: int
    since: float


@contextmanager
def noted(home: Path, drain: Drain) -> Iterator[None]:
    """Show for the block that this process is draining. Raises OSError."""
    path = home / f"{PREFIX}{drain.pid}"
    with lock_file(path) as mark:
        wait_lock(mark)
        os.ftruncate(mark, 0)
        os.pwrite(mark, msgspec.json.encode(drain), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def drains(home: Path) -> list[Drain]:
    """The drains that are going on now; changes nothing."""
    return [drain for path in _marks(home) if (drain := _live(path)) is not None]


def sweep(home: Path) -> None:
    """Remove the marks of processes that were killed. The caller holds the home's lock."""
    for path in _marks(home):
        if _live(path) is None:
            path.unlink(missing_ok=True)


def _marks(home: Path) -> list[Path]:
    return sorted(home.glob(f"{PREFIX}*"))


def _live(path: Path) -> Drain | None:
    written = lock_holder(path)
    try:
        return None if written is None else msgspec.json.decode(written, type=Drain)
    except UNREADABLE:  # it is being written
        return None
