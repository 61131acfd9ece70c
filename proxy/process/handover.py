"""Hand-over: the conversation in which a running process passes its listener and its home on.

Theory of operation
-------------------
The next process connects to `handover.sock` in the home. A message is a line: a word, and after a
colon what goes with it. turnlane 0.1.0 used the same words, so it can be taken over too.

    next                                running
    take over [if draining]     ->
                                <-      offer, and the listening socket itself; or refused
    commit                      ->
                                        (gives up the home's lock)
    ready                       ->

Until `commit` the running process serves as if nothing had been asked, and a next process that goes
away is forgotten; so the next one first prepares everything that may fail. At `commit` the running
one stops accepting, writes down what the next one must know, and gives up the home. Connections
that arrive in the meantime wait in the queue of the socket that both hold. At `ready` it begins its
drain: the clients that it sends away are served at once.

Either process may die at any point. The home's lock and the listening socket are the kernel's, so
the process that is left has both, or can have them.
"""

import array
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import trio

from proxy.control.socket import bind_unix
from proxy.server.stream import next_stream

HANDOVER_NAME: Final = "handover.sock"
MESSAGE_BYTES: Final = 8192
ANSWER_SECONDS: Final = 10.0
"""For each message. The next process prepares itself between offer and `commit`; others wait."""

_DESCRIPTOR: Final = array.array("i", [0]).itemsize


class Word(StrEnum):
    TAKE_OVER = "take over"
    TAKE_OVER_IF_DRAINING = "take over if draining"
    OFFER = "offer"
    REFUSED = "refused"
    COMMIT = "commit"
    READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`detail`: why it is refused; with `commit`, the Codex configuration that the next process
    connects, if any."""

    word: Word
    detail: str = ""


class Peer:
    """The other process, until the end of the `with` block. `passed`: the listening socket that it
    sent, closed with the peer unless it is taken from here."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._sock = sock
        self.passed: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Peer passed={self.passed!r}>"

    def close(self) -> None:
        self._sock.close()
        if self.passed is not None:
            self.passed.close()

    async def say(self, word: Word, detail: str = "", descriptor: int | None = None) -> None:
        """Send a message. A peer that is gone is noticed when it is next heard, not here."""
        line = f"{word}: {detail}\n" if detail else f"{word}\n"
        rights = [] if descriptor is None else [array.array("i", [descriptor]).tobytes()]
        with suppress(OSError):
            await self._sock.sendmsg(
                [line.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, each) for each in rights]
            )

    async def hear(self, seconds: float = ANSWER_SECONDS) -> Message | None:
        """Receive a message; None if the peer is gone, says nothing in time or nonsense."""
        line = b""
        with trio.move_on_after(seconds), suppress(OSError):
            while not line.endswith(b"\n") and len(line) < MESSAGE_BYTES:
                room = socket.CMSG_SPACE(_DESCRIPTOR)
                piece, rights, *_ = await self._sock.recvmsg(MESSAGE_BYTES, room)
                self._take(rights)
                if not piece:
                    break
                line += piece
        word, _, detail = line.decode(errors="replace").removesuffix("\n").partition(": ")
        try:
            return Message(word=Word(word), detail=detail) if line.endswith(b"\n") else None
        except ValueError:
            return None

    def _take(self, rights: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and self.passed is None:
                descriptor = array.array("i", data[:_DESCRIPTOR])[0]
                os.set_inheritable(descriptor, False)
                self.passed = socket.socket(fileno=descriptor)


# The running process.


async def wait_next(
    control: str, listening: trio.socket.SocketType, refuses: Callable[[bool], str | None]
) -> tuple[Peer, str]:
    """Wait for a next process to commit itself; return it, and the Codex configuration that it
    connects. `refuses` is called with whether it asks only a draining process, and says why nothing
    is handed over. The caller holds the lock."""
    with bind_unix(_path(control)) as bound:
        listener = trio.SocketListener(bound)
        while True:
            peer = Peer((await next_stream(listener)).socket)
            with ExitStack() as unless_committed:
                unless_committed.enter_context(peer)
                codex = await _offer(peer, listening, refuses)
                if codex is not None:
                    unless_committed.pop_all()
                    return peer, codex


async def _offer(
    peer: Peer, listening: trio.socket.SocketType, refuses: Callable[[bool], str | None]
) -> str | None:
    asked = await peer.hear()
    if asked is None or asked.word not in {Word.TAKE_OVER, Word.TAKE_OVER_IF_DRAINING}:
        return None
    if reason := refuses(asked.word is Word.TAKE_OVER_IF_DRAINING):
        await peer.say(Word.REFUSED, reason)
        return None
    await peer.say(Word.OFFER, descriptor=listening.fileno())
    answer = await peer.hear()
    return answer.detail if answer is not None and answer.word is Word.COMMIT else None


async def is_ready(peer: Peer) -> bool:
    """Wait for the next process, which has committed itself, to serve; False if it is gone."""
    message = await peer.hear()
    return message is not None and message.word is Word.READY


# The next process.


class HandOverRefused(Exception):  # noqa: N818  named by what happened
    """The process that holds the home hands nothing over; the text says why."""


async def ask_for_offer(control: str, *, only_if_draining: bool) -> Peer | None:
    """Return the running process, its listening socket in `passed`; None if none answers. Raises
    HandOverRefused."""
    with ExitStack() as unless_offered:
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer = unless_offered.enter_context(Peer(sock))
        with suppress(OSError):
            await sock.connect(_path(control))
        await peer.say(Word.TAKE_OVER_IF_DRAINING if only_if_draining else Word.TAKE_OVER)
        answer = await peer.hear()
        if answer is not None and answer.word is Word.REFUSED:
            raise HandOverRefused(answer.detail)
        if answer is not None and answer.word is Word.OFFER and peer.passed is not None:
            unless_offered.pop_all()
            return peer
    return None


def _path(control: str) -> str:
    return str(Path(control).with_name(HANDOVER_NAME))
