"""Note: what stood in Codex's configuration before, kept in the home until it is put back.

It is written before the configuration is touched and taken away after that is as it was, so while
anything of ours may be in the configuration, the note is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from proxy.codex.files import Files
from proxy.errors import RoutingError
from proxy.files import beside, lock_file, wait_lock

NOTE_NAME: Final = "codex.json"
LOCK_NAME: Final = "codex.lock"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """`wall` is seconds since the epoch: when the configuration was written, once it is `done`;
    until then, when that was about to be done."""

    config: str
    """The path that Codex opens."""
    target: str
    """The file that was behind it."""
    original: bytes | None
    """None when there was no file."""
    previous: str | None
    """What the key was set to, if it was."""
    value: str
    """What it was set to by turnlane."""
    written_sha256: str
    """Of the whole file as turnlane wrote it."""
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


def read_note(files: Files, home: Path) -> Note | None:
    """Changes nothing. Raises RoutingError when there is one that cannot be used."""
    path = home / NOTE_NAME
    try:
        content = files.read(path)
        return None if content is None else msgspec.json.decode(content, type=Note)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise RoutingError(f"{path} cannot be used: {error}") from error


def keep_note(files: Files, home: Path, note: Note) -> None:
    path = home / NOTE_NAME
    content = msgspec.json.format(msgspec.json.encode(note))
    files.replace(files.write_beside(path, content, like=False), path)


def drop_note(files: Files, home: Path) -> None:
    files.unlink(beside(home / NOTE_NAME))
    files.unlink(home / NOTE_NAME)
