"""Files: every step on the disk by which Codex is connected, so that each can be the last one.

A kill may fall between any two of these steps; what they leave is put straight by
`proxy.codex.connect`, whatever it is.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol

PRIVATE = 0o600
MOST_BYTES = 4 * 2**20
"""A configuration is a few kB; what is larger is something else."""


class Files(Protocol):
    """Paths are absolute, and no links but for `resolve`. All of them raise OSError."""

    def resolve(self, path: Path) -> Path:
        """The file behind a link, or behind several; it need not exist."""
        ...

    def read(self, path: Path) -> bytes | None:
        """The whole of a plain file; None when there is none."""
        ...

    def make_directory(self, path: Path) -> None: ...

    def write_beside(self, path: Path, content: bytes, *, like: bool) -> Path:
        """Put a new file next to `path` and on the disk; it has the mode of `path` if it is to be
        `like` it and there is one, else 0600."""
        ...

    def replace(self, fresh: Path, path: Path) -> None:
        """Let `fresh` be `path`, in one step that lasts."""
        ...

    def unlink(self, path: Path) -> None:
        """Take a file away that may be gone already."""
        ...


class Disk:
    """The real ones."""

    def resolve(self, path: Path) -> Path:
        return Path(os.path.realpath(path))

    def read(self, path: Path) -> bytes | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no plain file")
        if status.st_size > MOST_BYTES:
            raise OSError(f"{path} has more than {MOST_BYTES} bytes")
        return path.read_bytes()

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_beside(self, path: Path, content: bytes, *, like: bool) -> Path:
        fresh = beside(path)
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, PRIVATE), "wb") as file:
            file.write(content)
            file.flush()
            if like:
                _take_after(file.fileno(), path)
            os.fsync(file.fileno())
        return fresh

    def replace(self, fresh: Path, path: Path) -> None:
        fresh.replace(path)
        _sync(path.parent)

    def unlink(self, path: Path) -> None:
        try:
            path.unlink()
        except FileNotFoundError:
            return
        _sync(path.parent)


def beside(path: Path) -> Path:
    """Where a new content of `path` stands until it replaces it; one name, so that what a kill
    leaves there can be found."""
    return path.with_name(f".{path.name}.turnlane")


def _take_after(handle: int, path: Path) -> None:
    """Mode, and owner where that may be given: root edits a user's file and leaves it theirs."""
    with suppress(FileNotFoundError):
        status = path.stat()
        mine = os.fstat(handle)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            with suppress(PermissionError):
                os.fchown(handle, status.st_uid, status.st_gid)
        os.fchmod(handle, stat.S_IMODE(status.st_mode))


def _sync(directory: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename itself is done
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
