"""ClientRequest: what a handler works on; ClientConnection: the connection that it came on.

Close: why a WebSocket is closed.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from proxy.headers import HeaderList
from proxy.ingress.identity import Identity
from proxy.ingress.refusals import Audience, Figures
from proxy.journal.record import Transport

GOING_AWAY: Final = 1001
POLICY: Final = 1008
TOO_BIG: Final = 1009
TRY_AGAIN_LATER: Final = 1013


@dataclass(frozen=True, slots=True)
class Close:
    """Close the WebSocket (RFC 6455 section 7.4)."""

    code: int


class ClientConnection(Protocol):
    """What writers do beside ASGI, to send what comes together in one write."""

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        """Have `told` called with the length of the message that has arrived in part."""
        ...

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Write text frames in one go. Not cancelled half-way."""
        ...

    @property
    def chunked(self) -> bool:
        """Whether the answer that has begun is sent in chunks."""
        ...

    async def send_chunk(self, content: bytes) -> None:
        """Write a part of such an answer. Not cancelled half-way."""
        ...

    def hold(self) -> None:
        """Keep the next write until the one after it, which is sure to come; both leave as one."""
        ...


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request over HTTP, or the handshake of a WebSocket, and the way to answer it."""

    transport: Transport
    method: str
    path: str
    query: bytes
    """Without its `?`."""
    headers: HeaderList
    identity: Identity
    figures: Figures
    receive: Receive
    send: Send
    connection: ClientConnection

    @property
    def audience(self) -> Audience:
        return Audience(codex=self.identity.codex, transport=self.transport)
