"""Hand-over: the words by which one process passes its listener and its home to the next.

Theory of operation
-------------------
The next process connects to `handover.sock` in the home. What passes there:

    next                            old
    hello                   ->
                            <-      offer, and the listening socket itself
    commit                  ->
                            <-      released
    ready                   ->

Until `commit` the old process serves as if nobody had asked, and whoever goes away before is
forgotten; so the next one first prepares all that may fail. At `commit` the old one stops
accepting, writes down what the next one must know, and gives up the home. Connections that come
meanwhile wait in the queue of the socket that both hold. At `ready` the old one begins
its drain: those whom it sends away are served at once.

A process that goes away in between leaves the other one alone: the home's lock and the listening
socket are the kernel's, so the one that is left has, or can have, both.
"""

import array
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

import trio

from proxy.control.socket import bind_unix
from proxy.server.listener import next_stream

HANDOVER_NAME: Final = "handover.sock"
WORD_BYTES: Final = 512
OFFER_SECONDS: Final = 10.0
COMMIT_SECONDS: Final = 10.0
"""For the next process to prepare itself; others that ask wait."""
RELEASE_SECONDS: Final = 10.0
READY_SECONDS: Final = 10.0

TAKE_OVER: Final = b"take over\n"
TAKE_OVER_IF_DRAINING: Final = b"take over if draining\n"
OFFER: Final = b"offer\n"
REFUSED: Final = b"refused: "
COMMIT: Final = b"commit\n"
RELEASED: Final = b"released\n"
READY: Final = b"ready\n"

_DESCRIPTOR: Final = array.array("i", [0]).itemsize


class OtherProcess:
    """The other one's end of the conversation, to be closed by its `with`."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._sock = sock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    async def say(self, word: bytes, descriptor: int | None = None) -> None:
        """Nothing happens when the other one is gone: `hear` tells."""
        rights = [] if descriptor is None else [array.array("i", [descriptor]).tobytes()]
        with suppress(OSError):
            await self._sock.sendmsg(
                [word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, each) for each in rights]
            )

    async def hear(self, seconds: float) -> tuple[bytes, socket.socket | None]:
        """The next word, and the socket that came with it; no word when there is none in time."""
        word, passed = b"", None
        with trio.move_on_after(seconds), suppress(OSError):
            while not word.endswith(b"\n") and len(word) < WORD_BYTES:
                room = socket.CMSG_SPACE(_DESCRIPTOR)
                piece, rights, *_ = await self._sock.recvmsg(WORD_BYTES, room)
                passed = _passed(rights) or passed
                if not piece:
                    break
                word += piece
        if word.endswith(b"\n"):
            return word, passed
        if passed is not None:
            passed.close()
        return b"", None


def _passed(rights: list[tuple[int, int, bytes]]) -> socket.socket | None:
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) >= _DESCRIPTOR:
            descriptor = array.array("i", data[:_DESCRIPTOR])[0]
            os.set_inheritable(descriptor, False)
            return socket.socket(fileno=descriptor)
    return None


# The old one's side.


async def wait_next(
    control: str, listening: trio.socket.SocketType, refuses: Callable[[bool], str | None]
) -> OtherProcess:
    """The next process, once it has committed itself. `refuses` is asked with whether only a drain
    would do, and says why this process hands nothing over. The caller holds the lock."""
    with bind_unix(_path(control)) as door:
        listener = trio.SocketListener(door)
        while True:
            peer = OtherProcess((await next_stream(listener)).socket)
            with ExitStack() as unless_committed:
                unless_committed.enter_context(peer)
                if await _commits(peer, listening, refuses):
                    unless_committed.pop_all()
                    return peer


async def _commits(
    peer: OtherProcess, listening: trio.socket.SocketType, refuses: Callable[[bool], str | None]
) -> bool:
    asked, _ = await peer.hear(OFFER_SECONDS)
    if asked not in {TAKE_OVER, TAKE_OVER_IF_DRAINING}:
        return False
    if reason := refuses(asked == TAKE_OVER_IF_DRAINING):
        await peer.say(REFUSED + reason.encode() + b"\n")
        return False
    await peer.say(OFFER, listening.fileno())
    word, _ = await peer.hear(COMMIT_SECONDS)
    return word == COMMIT


async def released(peer: OtherProcess) -> bool:
    """Tell it that the home is free. Returns once it is ready; False when it is gone instead."""
    await peer.say(RELEASED)
    word, _ = await peer.hear(READY_SECONDS)
    return word == READY


# The next one's side.


class HandOverRefused(Exception):  # noqa: N818  named by what happened
    """The process that holds the home hands nothing over; the text says why."""


class Offer:
    """Of `peer`, which serves on until `commit`. To be closed by its `with`, and with it the
    listening socket: who takes the offer has that one too."""

    def __init__(self, peer: OtherProcess, listening: socket.socket) -> None:
        self._peer = peer
        self.listening = listening

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()
        self.listening.close()

    async def commit(self) -> bool:
        """Returns once the home is free; False when the other one is gone, or does not answer."""
        await self._peer.say(COMMIT)
        word, _ = await self._peer.hear(RELEASE_SECONDS)
        return word == RELEASED

    async def ready(self) -> None:
        await self._peer.say(READY)
        self._peer.close()


async def ask_for_offer(control: str, *, only_if_draining: bool) -> Offer | None:
    """None when nobody answers. Raises Refused."""
    with ExitStack() as unless_offered:
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer = unless_offered.enter_context(OtherProcess(sock))
        with suppress(OSError):
            await sock.connect(_path(control))
        await peer.say(TAKE_OVER_IF_DRAINING if only_if_draining else TAKE_OVER)
        word, listening = await peer.hear(OFFER_SECONDS)
        if word == OFFER and listening is not None:
            unless_offered.pop_all()
            return Offer(peer, listening)
        if word.startswith(REFUSED):
            raise HandOverRefused(word.removeprefix(REFUSED).decode(errors="replace").strip())
    return None


def _path(control: str) -> str:
    return str(Path(control).with_name(HANDOVER_NAME))
