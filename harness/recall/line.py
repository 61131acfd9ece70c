"""How one session speaks to the proxy, whichever transport carries it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from harness.recall.calls import Item
from harness.recall.plan import ScriptedExchange


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a response, with the bytes that carried it."""

    fields: Mapping[str, Any]
    data: bytes

    @property
    def type(self) -> str:
        return str(self.fields.get("type"))

    @property
    def is_item(self) -> bool:
        """True if it completes an output item: Codex takes items from no other event."""
        return self.type == "response.output_item.done"

    @property
    def response_id(self) -> str:
        response = self.fields.get("response")
        return str(response.get("id") or "") if isinstance(response, dict) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRefused:
    """A refusal: an HTTP status that is not 200, or an `error` frame."""

    status: int | None
    code: str
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """turnlane's own reason; empty when the upstream refused."""
        return self.headers.get("x-turnlane-refusal", "")

    @property
    def says_when(self) -> bool:
        """True if it advises a wait that Codex obeys: whole seconds, at least one."""
        advice = self.headers.get("retry-after", "")
        return advice.isdecimal() and int(advice) >= 1

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.status), self.code, self.reason or self.message)))


@dataclass(frozen=True, slots=True)
class LineClosed:
    """The stream or the socket has ended."""

    clean: bool
    """True if the stream says that it is complete; a WebSocket never ends by itself."""


LineMessage = StreamEvent | LineRefused | LineClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the proxy listens."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"


class SessionLine(Protocol):
    """Sends requests, one at a time, and receives what comes back."""

    @property
    def ends_itself(self) -> bool:
        """True if `LineClosed` follows the last message of each answer."""

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
        """Send a request. `items` is the whole input; the line sends what its transport needs."""

    async def receive(self) -> LineMessage:
        """Return the next message. A session that stops calling this is a slow reader."""

    async def interrupt(self) -> bool:
        """Stop the running response. Returns False if that means hanging up: nothing more comes."""

    async def leftovers(self) -> Sequence[LineMessage]:
        """Return what has arrived although nothing runs."""

    async def drop(self) -> None:
        """Close without a Close frame, as Codex does; the next `send` opens a new connection."""


def read_object(data: bytes) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def refusal(
    fields: Mapping[str, Any], status: int | None, headers: Mapping[str, str]
) -> LineRefused:
    """Return the refusal that a JSON document carries."""
    error = fields.get("error")
    told = error if isinstance(error, dict) else {}
    code, text = str(told.get("code") or ""), str(told.get("message") or "")
    return LineRefused(status=status, code=code, message=text, headers=headers)
