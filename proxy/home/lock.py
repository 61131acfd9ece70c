"""The lock of a home, turnlane's one data directory: a file that names the holding process."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from proxy.errors import ConfigError, HomeTaken
from proxy.files import LOCK_TRIES, lock_file, lock_holder, try_lock

LOCK_NAME = "lock"
CONTROL_NAME = "control.sock"


def home_of(environment: Mapping[str, str]) -> Path:
    """Return TURNLANE_HOME, else `turnlane` below XDG_DATA_HOME, else below ~/.local/share."""
    if named := environment.get("TURNLANE_HOME"):
        return Path(named).expanduser()
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "turnlane"


@contextmanager
def locked(home: Path, pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hold the home's lock for the block; yields the path of its control socket.

    Raises HomeTaken, which names the process that has the lock, or ConfigError.
    """
    control = control_path(home)
    with ExitStack() as held:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = held.enter_context(lock_file(home / LOCK_NAME))
        except OSError as error:
            problem = f"{home} cannot be used: {error.strerror}"
            raise ConfigError("TURNLANE_HOME", problem) from error
        if not try_lock(lock, tries=LOCK_TRIES, pause=pause):
            problem = f"{home} is in use by the process with pid {_pid(os.pread(lock, 32, 0))}"
            raise HomeTaken("TURNLANE_HOME", problem)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield control


def holder(home: Path) -> str | None:
    """Return the pid of the process that holds the home, `unknown` if it cannot be read, or None if
    no process does. Changes nothing."""
    written = lock_holder(home / LOCK_NAME)
    return None if written is None else _pid(written)


def if_it_hangs(home: Path) -> str:
    """The end of a sentence about a holder that did not answer; empty if its pid is unknown."""
    pid = holder(home) or ""
    if not pid.isdecimal():
        return ""
    return f"; if pid {pid} hangs, run `kill -9 {pid}` and then `turnlane serve`"


def _pid(written: bytes) -> str:
    return written[:32].decode("ascii", "replace").strip() or "unknown"


def control_path(home: Path) -> str:
    """The control socket's path, short enough for `sun_path` of unix(7): 108 bytes on Linux, 104
    elsewhere. Raises ConfigError if there is none."""
    text = str(home / CONTROL_NAME)
    if len(text.encode()) < 100:
        return text
    relative = os.path.relpath(text)
    if len(relative.encode()) < 100:
        return relative
    raise ConfigError(
        "TURNLANE_HOME", "its path is too long for a control socket (at most 100 bytes)"
    )
