"""The control socket: commands of this user's own processes, a line of JSON each."""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import trio

from proxy.control.commands import Command, read_command
from proxy.errors import CommandFailed
from proxy.server.stream import next_stream

logger = logging.getLogger(__name__)

PEERS = 16
"""Commands at once; more wait."""
COMMAND_BYTES = 64 * 1024
COMMAND_SECONDS = 5.0

WORK_SECONDS = 60.0
"""Some commands ask a provider; each has a deadline of its own below this one."""

Handle = Callable[[Command], Awaitable[object]]


async def serve_control(
    control: str,
    answer: Handle,
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
    """Bind a socket for this user's own processes, removed at the end. The caller holds the
    lock."""
    path = Path(name)
    path.unlink(missing_ok=True)  # left by a process that was killed
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


async def _converse(peer: trio.SocketStream, answer: Handle, places: trio.Semaphore) -> None:
    """Answer one command. Commands and answers are short, so a slow peer is given up soon."""
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
    """Read one line; nothing from a peer that leaves or is too slow."""
    line = b""
    with trio.move_on_after(COMMAND_SECONDS):
        while not line.endswith(b"\n") and len(line) < COMMAND_BYTES:
            if not (piece := await peer.receive_some(COMMAND_BYTES)):
                return b""
            line += piece
        return line
    return b""


async def answered(line: bytes, answer: Handle) -> bytes:
    """Return the line that a command is answered with, whatever becomes of it."""
    try:
        with trio.move_on_after(WORK_SECONDS):
            return msgspec.json.encode(await answer(read_command(line)))
        return msgspec.json.encode({"error": f"the command took longer than {WORK_SECONDS:g} s"})
    except CommandFailed as error:
        return msgspec.json.encode({"error": str(error)})
    except Exception as error:  # a bug in one command ends neither the others nor any turn
        logger.exception("a command failed")
        return msgspec.json.encode(
            {"error": f"turnlane failed on this command; see its log: {error}"}
        )
