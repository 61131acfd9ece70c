"""Peer: the connection below a WebSocket, as far as that needs it."""

from collections.abc import Callable, Sequence
from typing import Protocol


class Peer(Protocol):
    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        """Have `told` called with the length of the message that has arrived in part."""
        ...

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Write text frames in one go."""
        ...
