"""Line: how one session speaks to the proxy, whichever transport carries it."""

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
        """Whether it completes an output item: Codex takes items from nowhere else."""
        return self.type == "response.output_item.done"

    @property
    def response_id(self) -> str:
        response = self.fields.get("response")
        return str(response.get("id") or "") if isinstance(response, dict) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A no: an HTTP status that is not 200, or an `error` frame."""

    status: int | None
    code: str
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why turnlane itself refused; empty when the no came from somebody else."""
        return self.headers.get("x-turnlane-refusal", "")

    @property
    def says_when(self) -> bool:
        """Whether it advises a wait that Codex obeys: whole seconds, at least one."""
        advice = self.headers.get("retry-after", "")
        return advice.isdecimal() and int(advice) >= 1

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.status), self.code, self.reason or self.message)))


@dataclass(frozen=True, slots=True)
class LineClosed:
    """The stream or the socket has ended."""

    clean: bool
    """Whether the stream says itself that it is whole; a WebSocket never ends by itself."""


Message = StreamEvent | Refused | LineClosed


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
        """Whether `Closed` follows the last message of each answer."""

    async def send(self, exchange: ScriptedExchange, items: Sequence[Item]) -> None:
        """Ask. `items` is the whole input; the line sends what its transport needs of it."""

    async def receive(self) -> Message:
        """The next message. Whoever does not call it is a reader that has stopped."""

    async def interrupt(self) -> bool:
        """Stop the response that is running. False: by hanging up, so nothing more will come."""

    async def leftovers(self) -> Sequence[Message]:
        """What has arrived although nothing runs."""

    async def drop(self) -> None:
        """Go away without a word, as Codex does; the next `send` opens a new connection."""


def read_object(data: bytes) -> Mapping[str, Any]:
    """A JSON object, or an empty one for anything else."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def refusal(fields: Mapping[str, Any], status: int | None, headers: Mapping[str, str]) -> Refused:
    """A refusal from the JSON document that carries it."""
    error = fields.get("error")
    told = error if isinstance(error, dict) else {}
    code, text = str(told.get("code") or ""), str(told.get("message") or "")
    return Refused(status=status, code=code, message=text, headers=headers)
