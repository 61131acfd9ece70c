"""Home: the one data directory of a turnlane, its lock, and its control socket.

The lock is an flock on a file that names its holder, so it cannot be stale: it ends with the
process, however that ends. The control socket takes one JSON line and answers with one.
"""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from proxy.errors import ConfigError, HomeTaken
from proxy.shallow import UNREADABLE
from proxy.wire import next_stream

logger = logging.getLogger("turnlane")

LOCK_NAME = "lock"
CONTROL_NAME = "control.sock"
PEERS = 16
"""Commands at once; more wait."""
COMMAND_BYTES = 64 * 1024
COMMAND_SECONDS = 5.0

LOOKS = 5
LOOK_SECONDS = 0.002
"""Whoever looks who holds the lock has it for a moment: it is tried again before that counts."""

WORK_SECONDS = 60.0
"""Some commands ask a provider; each has a deadline of its own below this one."""

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


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


async def serve_control(
    control: str,
    answer: Answer,
    peers: trio.Nursery,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer commands of this user until cancelled. The caller holds the lock."""
    places = trio.Semaphore(PEERS)
    with bind_unix(control) as bound:
        task_status.started()
        while True:
            await places.acquire()
            stream = await next_stream(trio.SocketListener(bound))
            peers.start_soon(_converse, stream, answer, places)


@contextmanager
def bind_unix(name: str) -> Iterator[trio.socket.SocketType]:
    """A socket for this user's own processes, gone at the end. The caller holds the lock."""
    path = Path(name)
    path.unlink(missing_ok=True)  # left behind by a process that was killed
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        plain.bind(name)
    finally:
        os.umask(before)
    plain.listen(16)
    plain.setblocking(False)
    try:
        with trio.socket.from_stdlib_socket(plain) as bound:
            yield bound
    finally:
        path.unlink(missing_ok=True)


async def _converse(peer: trio.SocketStream, answer: Answer, places: trio.Semaphore) -> None:
    """Commands and answers are short: a slow peer is given up soon."""
    try:
        with suppress(trio.BrokenResourceError):
            if line := await _command(peer):
                said = await answered(line, answer)
                with trio.move_on_after(COMMAND_SECONDS):
                    await peer.send_all(said + b"\n")
    finally:
        peer.socket.close()
        places.release()


async def _command(peer: trio.SocketStream) -> bytes:
    """One line; nothing from a peer that leaves or is too slow."""
    line = b""
    with trio.move_on_after(COMMAND_SECONDS):
        while not line.endswith(b"\n") and len(line) < COMMAND_BYTES:
            if not (piece := await peer.receive_some(COMMAND_BYTES)):
                return b""
            line += piece
        return line
    return b""


async def answered(line: bytes, answer: Answer) -> bytes:
    """The line that a command is answered with, whatever becomes of it."""
    try:
        command = msgspec.json.decode(line, type=dict[str, Any])
    except UNREADABLE as error:
        return msgspec.json.encode({"error": f"not a command: {error}"})
    try:
        with trio.move_on_after(WORK_SECONDS):
            return msgspec.json.encode(await answer(command))
        return msgspec.json.encode({"error": f"it took longer than {WORK_SECONDS:g} s"})
    except Exception as error:  # a bug in one command ends neither the others nor any turn
        logger.exception("a command failed")
        return msgspec.json.encode({"error": f"turnlane failed on this command: {error}"})


def control_path(home: Path) -> str:
    """A path that fits `sun_path` (108 bytes on Linux, 104 elsewhere). Raises ConfigError."""
    text = str(home / CONTROL_NAME)
    if len(text.encode()) < 100:
        return text
    relative = os.path.relpath(text)
    if len(relative.encode()) < 100:
        return relative
    raise ConfigError("TURNLANE_HOME", "its path is too long for a control socket (100 bytes)")
