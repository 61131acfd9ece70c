"""An auth.json on disk: read when it has changed, locked beside it, replaced in one step.

It may be Codex's own file. Codex takes no lock when it replaces the file. So the lock only keeps
several turnlanes from refreshing at once; between turnlane and Codex, a comparison of the tokens
finds out who was first.

Every step is short and synchronous: the file has 4 kB, and a refresh is rare. A worker thread would
put a checkpoint between a token that works once and the file that must keep its successor.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import trio

from proxy.accounts.credentials.auth_json import Login, NoLogin, Renewal, read_login, rewritten
from proxy.files import lock_file, replace_file, try_lock

MOST_BYTES: Final = 2**20
"""A larger file is not an auth.json."""
LOCK_SUFFIX: Final = ".turnlane.lock"
RETRY_SECONDS: Final = 0.05
SETTLE_SECONDS: Final = 1.0


class Stamp(NamedTuple):
    """What tells one version of a file from the next."""

    mtime_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A file as it was read; `data` is empty if it could not be read."""

    stamp: Stamp | None
    data: bytes = field(repr=False)
    login: Login | NoLogin


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if there is no such file."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def read(path: Path) -> Copy:
    """Read a file; one that cannot be read is a copy without a login."""
    try:
        with path.open("rb") as file:
            found = _stamp(os.fstat(file.fileno()))
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Copy(stamp=None, data=b"", login=NoLogin.GONE)
    except OSError:
        return Copy(stamp=None, data=b"", login=NoLogin.BROKEN)
    login = read_login(data) if len(data) <= MOST_BYTES else NoLogin.BROKEN
    return Copy(stamp=found, data=data, login=login)


async def read_settled(path: Path) -> Copy:
    """Read a file, giving one that is being written `SETTLE_SECONDS` to become whole."""
    deadline = trio.current_time() + SETTLE_SECONDS
    while True:
        found = read(path)
        if found.login is not NoLogin.BROKEN or trio.current_time() >= deadline:
            return found
        await trio.sleep(RETRY_SECONDS)


@asynccontextmanager
async def locked_beside(path: Path) -> AsyncIterator[None]:
    """Wait for the lock beside the file that the path leads to, and hold it. Raises OSError."""
    with lock_file(lock_path(path)) as lock:
        while not try_lock(lock):  # noqa: ASYNC110  no event tells of another process
            await trio.sleep(RETRY_SECONDS)
        yield


def lock_path(path: Path) -> Path:
    """Return the lock of the file that the path leads to."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + LOCK_SUFFIX)


def tokens_differ(now: Copy, before: Copy) -> bool:
    """Whether another process wrote other tokens. Bytes that stay broken do not count, so that they
    are replaced."""
    if now.login is NoLogin.BROKEN or not isinstance(before.login, Login):
        return False
    if not isinstance(now.login, Login):
        return True
    return (now.login.identity, now.login.access_token, now.login.refresh_token) != (
        before.login.identity,
        before.login.access_token,
        before.login.refresh_token,
    )


def write_back(path: Path, before: Copy, renewal: Renewal, wall: float) -> Copy:
    """Replace the old tokens by renewed ones, unless another process was faster; return the file as
    it is afterwards.

    Raises OSError when the file cannot be written: then only the caller has the new tokens.
    """
    now = read(path)
    if now.login is NoLogin.GONE or tokens_differ(now, before):
        return now
    source = now.data if isinstance(now.login, Login) else before.data
    replace_file(path, rewritten(source, renewal, wall))
    return read(path)


def check_login(path: Path) -> Copy:
    """Read a login. Raises ValueError if the file is not one."""
    found = read(path)
    problem = _why_not(path, found.login) if isinstance(found.login, NoLogin) else None
    if problem is not None:
        raise ValueError(f"{path} does not hold a ChatGPT login: {problem}")
    return found


def _why_not(path: Path, problem: NoLogin) -> str:
    if problem is NoLogin.GONE:
        return "there is no such file"
    if path.is_dir():
        return "it is a directory; its auth.json is meant"
    if problem is NoLogin.API_KEY:
        return f"{problem.value}; `turnlane accounts add` takes that, `codex login` makes a login"
    return problem.value


def login_copy(path_from: Path, path_to: Path) -> None:
    """Copy a login into a private file. Raises ValueError if there is none, OSError if it cannot be
    written.

    A refresh token works once: after either file has been refreshed, the other's is used up.
    """
    found = check_login(path_from)
    path_to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path_to, found.data)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)
