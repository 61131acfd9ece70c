"""What handlers work on: ClientRequest, its ClientConnection, and Close, the end of a WebSocket."""

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
    """The connection below ASGI, for writers that send in one write what came together."""

    def watch_unfinished(self, told: Callable[[int], None] | None) -> None:
        """Call `told` with the length in bytes of the message that has arrived in part."""
        ...

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Write text frames in one go. Cancellation does not interrupt it."""
        ...

    @property
    def chunked(self) -> bool:
        """Whether the answer that has begun uses chunked coding (RFC 9112 section 7.1)."""
        ...

    async def send_chunk(self, content: bytes) -> None:
        """Write one chunk of such an answer. Cancellation does not interrupt it."""
        ...

    def hold(self) -> None:
        """Keep the next write back so that it leaves with the one after it, which must follow."""
        ...


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """An HTTP request or the handshake of a WebSocket, and the means to answer it."""

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
