"""Accept streams, bound every write to a client, and turn text frames into bytes."""

import logging
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

logger = logging.getLogger(__name__)
DROPPED_BYTES: Final = 65536
ACCEPT_AGAIN_SECONDS: Final = 0.1
_TEXT: Final = 0x81  # final frame, opcode 1 (RFC 6455, section 5.2); a server does not mask
_SHORT: Final = tuple(bytes((_TEXT, size)) for size in range(126))
_MEDIUM: Final = struct.Struct(">BBH").pack
_LONG: Final = struct.Struct(">BBQ").pack


async def next_stream(listener: trio.SocketListener) -> trio.SocketStream:
    """Return the next connection. Retry when accepting fails, as when no file is left to open."""
    while True:
        try:
            return await listener.accept()
        except OSError as error:
            logger.warning("cannot accept: %s", error.strerror)
            await trio.sleep(ACCEPT_AGAIN_SECONDS)


class ClientStream:
    """A trio.SocketStream as hypercorn uses it.

    A write that makes no progress for `stall_seconds` closes the connection. hypercorn shields its
    writes, so nothing else can end them.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        stall_seconds: float,
        attempt: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self._stream = stream
        self._attempt = attempt
        self._stall_seconds = stall_seconds
        self._shut = False
        self._reading = trio.CancelScope()
        self.socket = stream.socket

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return bytes from the peer. Raise trio.ClosedResourceError once our side is shut."""
        if not self._shut:
            with trio.CancelScope() as self._reading:
                return await self._stream.receive_some(max_bytes)
        raise trio.ClosedResourceError("our side is shut")

    def write(self, data: bytes) -> bytes:
        """Write what the kernel takes at once and return the rest, for `send_all`.

        Usually the kernel takes everything; trio's `send_all` would yield to the scheduler even
        then, at every write. Raise trio.BrokenResourceError when the peer is gone.
        """
        try:
            return data[self._attempt(self.socket.fileno(), data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes) -> None:
        """Write all of `data`. Raise trio.BrokenResourceError if the peer is gone or stalls."""
        left = memoryview(data)
        while left:
            with trio.move_on_after(self._stall_seconds) as patience:
                try:
                    left = left[await self.socket.send(left) :]
                except OSError as error:
                    raise trio.BrokenResourceError from error
            if patience.cancelled_caught:
                await self._stream.aclose()
                raise trio.BrokenResourceError("the client takes nothing")

    def shut(self) -> None:
        """Tell the peer that nothing more will be sent, and read nothing more from it."""
        self._shut = True
        self._reading.cancel()
        with suppress(OSError):
            self.socket.shutdown(trio.socket.SHUT_WR)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def read_on(self) -> None:
        """Read and drop until the peer hangs up, or our side is shut."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self.receive_some(DROPPED_BYTES):
                pass

    async def linger(self, seconds: float) -> None:
        """Shut our side, then read and drop until the peer closes too, for at most `seconds`.

        Closing with unread bytes would reset the connection, and the peer could lose what it has
        not read yet (RFC 9112, section 9.6).
        """
        self.shut()
        with (
            trio.move_on_after(seconds),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while await self._stream.receive_some(DROPPED_BYTES):
                pass


def text_frames(messages: Sequence[bytes]) -> bytes:
    """Return unmasked text frames, one for each message (RFC 6455, section 5.2)."""
    parts: list[bytes] = []
    for message in messages:
        size = len(message)
        if size < 126:
            parts.append(_SHORT[size])
        elif size < 65536:
            parts.append(_MEDIUM(_TEXT, 126, size))
        else:
            parts.append(_LONG(_TEXT, 127, size))
        parts.append(message)
    return b"".join(parts)
