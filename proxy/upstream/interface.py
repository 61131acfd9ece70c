"""The upstream as a turn sees it: one request out, one reply or failure back."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from proxy.headers import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """What goes up. `headers` are complete but for the framing; `query` is without its `?`.

    `base_url` is where the account that serves wants it sent; None is the configured upstream.
    """

    base_url: str | None = None
    method: str = "POST"
    path: str = "/responses"
    query: bytes = b""
    headers: Headers
    body: bytes | None
    streamed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No reply: the attempt failed before one. `retriable`: another send may well succeed."""

    status: int
    code: str
    message: str
    retriable: bool


class UpstreamReply(Protocol):
    """The head of a reply, and its body a read at a time."""

    status: int
    headers: Headers
    name: str
    """Which upstream answered: its host."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises UpstreamCut."""
        ...


class Upstream(Protocol):
    """Where turns go. A reply is open for the block and closed with it, wherever it stands."""

    def open(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamReply | Failure]: ...
