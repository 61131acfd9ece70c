"""The upstream as a turn sees it: one request out, one reply or failure back."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from proxy.headers import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One request. `headers` are complete except for Host and framing; `query` has no `?`.

    `base_url` is the own URL of the account that serves; None means the configured upstream.
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
    """An attempt that failed before any reply. `retriable`: another send may well succeed."""

    status: int
    code: str
    message: str
    retriable: bool


class UpstreamReply(Protocol):
    """The head of a reply, and its body one read at a time."""

    status: int
    headers: Headers
    name: str
    """The host that answered."""

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at the end. Raises UpstreamCut."""
        ...


class Upstream(Protocol):
    """Where turns go. A reply is open for the block and closed with it, read to its end or not."""

    def open(
        self, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamReply | Failure]: ...
