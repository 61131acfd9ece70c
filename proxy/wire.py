"""Wire: the stream under hypercorn, every write bounded; and WebSocket frames as bytes."""

from collections.abc import Sequence
from typing import Final

import trio

_TEXT: Final = 0x81  # final frame, opcode 1 (RFC 6455, section 5.2); a server does not mask


class Wire:
    """A trio.SocketStream as hypercorn uses it. A write that makes no progress for
    `stall_seconds` closes the connection: hypercorn shields its writes, nothing else ends them."""

    def __init__(self, stream: trio.SocketStream, stall_seconds: float) -> None:
        self._stream = stream
        self._stall_seconds = stall_seconds
        self.socket = stream.socket

    async def receive_some(self, max_bytes: int) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:
        """Raises trio.BrokenResourceError when the peer is gone or has stalled."""
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

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def read_on(self) -> None:
        """Read and drop until the peer hangs up."""
        try:
            while await self._stream.receive_some(65536):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


def text_frames(messages: Sequence[bytes]) -> bytes:
    """Unmasked text frames, one for each message."""
    parts: list[bytes] = []
    for message in messages:
        size = len(message)
        if size < 126:
            parts.append(bytes((_TEXT, size)))
        elif size < 65536:
            parts.append(bytes((_TEXT, 126)) + size.to_bytes(2, "big"))
        else:
            parts.append(bytes((_TEXT, 127)) + size.to_bytes(8, "big"))
        parts.append(message)
    return b"".join(parts)
