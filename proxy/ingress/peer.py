"""Peer: the connection below a WebSocket, as far as that needs it, and why it is closed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

GOING_AWAY: Final = 1001
POLICY: Final = 1008
TOO_BIG: Final = 1009
TRY_AGAIN_LATER: Final = 1013


@dataclass(frozen=True, slots=True)
class Close:
    code: int


class Peer(Protocol):
    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        """Have `told` called with the length of the message that has arrived in part."""
        ...

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Write text frames in one go."""
        ...
