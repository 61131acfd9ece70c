"""Home: the one data directory of a turnlane, its lock, and its control socket.

The lock is an flock on a file that names its holder, so it cannot be stale: it ends with the
process, however that ends. The control socket takes one JSON line and answers with one.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxy.errors import ConfigError, HomeTaken

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"
CONTROL_NAME = "control.sock"

LOOKS = 5
LOOK_SECONDS = 0.002
"""Whoever looks who holds the lock has it for a moment: it is tried again before that counts."""


@contextmanager
def locked(home: Path, pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hold the home; brings the path of its control socket.

    Raises HomeTaken saying which process has it, or ConfigError.
    """
    control = control_path(home)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError("TURNLANE_HOME", f"{home} cannot be used: {error.strerror}") from error
    try:
        if not _taken(lock, pause):
            problem = f"{home} is in use by the process with pid {_named(lock)}"
            raise HomeTaken("TURNLANE_HOME", problem)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield control
    finally:
        os.close(lock)


def holder(home: Path) -> str | None:
    """The pid of whoever holds the home, `unknown` if it cannot be read; None when nobody does.
    Changes nothing."""
    try:
        lock = os.open(home / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(lock)
    finally:
        os.close(lock)
    return None


def if_it_hangs(home: Path) -> str:
    """The end of a sentence about a holder that did not answer; empty if its pid is not known."""
    pid = holder(home) or ""
    if not pid.isdecimal():
        return ""
    return f"; if pid {pid} hangs, `kill -9 {pid}` ends it, then `turnlane serve`"


def _taken(lock: int, pause: Callable[[float], None]) -> bool:
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        pause(LOOK_SECONDS)
    return False


def _named(lock: int) -> str:
    return os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"


def control_path(home: Path) -> str:
    """A path that fits `sun_path` (108 bytes on Linux, 104 elsewhere). Raises ConfigError."""
    text = str(home / CONTROL_NAME)
    if len(text.encode()) < 100:
        return text
    relative = os.path.relpath(text)
    if len(relative.encode()) < 100:
        return relative
    raise ConfigError("TURNLANE_HOME", "its path is too long for a control socket (100 bytes)")
