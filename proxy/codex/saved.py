"""The note of Codex's original configuration, kept in the home until that is restored.

It is written before the configuration is changed and removed after that is restored, so it exists
whenever the configuration may hold something of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from proxy.codex.files import Disk
from proxy.errors import RoutingError
from proxy.files import beside, lock_file, wait_lock

NOTE_NAME: Final = "codex.json"
LOCK_NAME: Final = "codex.lock"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The original configuration and what replaced it. `wall` is seconds since the epoch: when the
    configuration was written if `phase` is `done`, else when that was about to happen."""

    config: str
    """The path that Codex opens."""
    target: str
    """The file that the path led to."""
    original: bytes | None
    """The whole file; None if it did not exist."""
    previous: str | None
    """The earlier value of the key, if it was set."""
    value: str
    """The value that turnlane wrote."""
    written_sha256: str
    """The hash of the whole file as turnlane wrote it."""
    wall: float
    phase: Literal["intent", "done"]


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Let one command at a time change Codex's configuration. This is not the lock of the process
    that serves. Raises OSError."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_file(home / LOCK_NAME) as lock:
        wait_lock(lock)
        yield


def read_note(files: Disk, home: Path) -> Note | None:
    """Return the note, if there is one. Raises RoutingError if it cannot be used."""
    path = home / NOTE_NAME
    try:
        content = files.read(path)
        return None if content is None else msgspec.json.decode(content, type=Note)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise RoutingError(f"{path} cannot be used: {error}") from error


def keep_note(files: Disk, home: Path, note: Note) -> None:
    path = home / NOTE_NAME
    content = msgspec.json.format(msgspec.json.encode(note))
    files.replace(files.write_beside(path, content, like=False), path)


def drop_note(files: Disk, home: Path) -> None:
    files.unlink(beside(home / NOTE_NAME))
    files.unlink(home / NOTE_NAME)
