"""Files: replacing one in a single step, and locks that end with their process.

A replacement is written beside its file, flushed to the disk and renamed over it, so a reader finds
the old content or the new one, and so does a machine that has lost its power (fsync(2) of the file
and of its folder). A lock is an flock(2): the kernel drops it when the process ends, however that
ends, so no lock is ever stale.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
LOCK_TRIES: Final = 5
LOCK_SECONDS: Final = 0.002
"""Between two tries: `lock_holder` takes a lock for an instant, which must not count as held."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def replace_file(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Replace a file, or make it, and keep its owner. A link stays; what it leads to is replaced.

    Raises OSError; the file is then as it was.
    """
    target = Path(os.path.realpath(path))
    fresh = write_beside(target, content, mode=mode)
    try:
        move_over(fresh, target)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def beside(path: Path) -> Path:
    """The temporary file of `path`: one fixed name, so that what a kill leaves there is found."""
    return path.with_name(f".{path.name}.turnlane")


def write_beside(path: Path, content: bytes, *, mode: int | None = PRIVATE) -> Path:
    """Write the temporary file of `path` to the disk and return where it is.

    It has `mode` less the umask from its first byte, or with None the mode of `path`, and the owner
    of `path` where that can be given. Raises OSError and leaves no temporary file.
    """
    fresh = beside(path)
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, _NEW, PRIVATE if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            with suppress(FileNotFoundError):
                _resemble(handle, path.stat(), mode)
            os.fsync(handle)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def move_over(fresh: Path, path: Path) -> None:
    """Let the temporary file be `path`, in one step that lasts. Raises OSError."""
    fresh.replace(path)
    _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file for good, if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
        _sync(path.parent)


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Open the file of a lock, made if it is missing; the end of the block drops the lock that was
    taken on it. Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        yield handle
    finally:
        os.close(handle)


def wait_lock(handle: int) -> None:
    """Take the lock, as soon as no other process has it."""
    fcntl.flock(handle, fcntl.LOCK_EX)


def try_lock(handle: int, *, tries: int = 1, pause: Callable[[float], None] = time.sleep) -> bool:
    """Take the lock unless another process has it, and return whether it was taken."""
    for left in reversed(range(tries)):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if left:
            pause(LOCK_SECONDS)
    return False


def lock_holder(path: Path, most_bytes: int = 1024) -> bytes | None:
    """Return what the holder of a lock wrote into its file, or None if no process holds it.

    Changes nothing, though it has the lock, shared, for an instant.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, most_bytes, 0)
    finally:
        os.close(handle)
    return None


def _resemble(handle: int, there: os.stat_result, mode: int | None) -> None:
    """Take the owner of the file that is there: root edits a user's file and leaves it theirs. A
    private file that its owner could not read afterwards raises PermissionError."""
    mine = os.fstat(handle)
    if (mine.st_uid, mine.st_gid) != (there.st_uid, there.st_gid):
        try:
            os.fchown(handle, there.st_uid, there.st_gid)
        except PermissionError:
            if mode == PRIVATE and mine.st_uid != there.st_uid:
                raise
    if mode is None:
        os.fchmod(handle, stat.S_IMODE(there.st_mode))


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename itself is done
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
