"""Responses events, pure: the few that turnlane reads, mends or makes itself.

Everything else passes through as bytes that nobody looked into.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from proxy.responses.rawjson import UNREADABLE, Fields, members
from proxy.responses.sse import Event, event_from

_REQUIRED_DETAILS: Final = (
    ("input_tokens_details", "cached_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


class _Response(msgspec.Struct):
    id: str = ""


class _Holder(msgspec.Struct):
    response: _Response = msgspec.field(default_factory=_Response)


class _ItemDone(msgspec.Struct):
    item: msgspec.Raw = msgspec.Raw(b"")


class _Error(msgspec.Struct):
    """What Codex wants of an `error`; it ignores a frame whose error is anything else."""

    code: str | None = None
    message: str | None = None


_error: Final = msgspec.json.Decoder(_Error)
_status: Final = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=300, le=999)])
_holder: Final = msgspec.json.Decoder(_Holder)
_item_done: Final = msgspec.json.Decoder(_ItemDone)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one response; None where the upstream said nothing, which is not 0."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


UNKNOWN_USAGE: Final = TokenUsage()


def response_id(data: bytes) -> str:
    """The id of the response that an event speaks of; empty when it names none."""
    try:
        return _holder.decode(data).response.id
    except UNREADABLE:
        return ""


def output_item(data: bytes) -> bytes:
    """The item of `response.output_item.done`, byte for byte; empty when there is none."""
    try:
        return bytes(_item_done.decode(data).item)
    except UNREADABLE:
        return b""


def complete_usage(event: Event) -> tuple[Event, TokenUsage]:
    """A terminal event whose usage has every field, and what it says.

    Codex rejects a `response.completed` with a partial usage and asks again, so what is missing
    becomes 0 on the wire. A usage that is absent stays absent.
    """
    try:
        fields = members(event.data or b"")
        response = members(fields["response"])
        usage = msgspec.json.decode(response["usage"])
    except (KeyError, *UNREADABLE):
        return event, UNKNOWN_USAGE
    if not isinstance(usage, dict):
        return event, UNKNOWN_USAGE
    said = _said(usage)
    if _fill(usage):
        response["usage"] = msgspec.Raw(msgspec.json.encode(usage))
        fields["response"] = msgspec.Raw(msgspec.json.encode(response))
        event = event_from(msgspec.json.encode(fields), event.type)
    return event, said


def readable_error(error: msgspec.Raw | None, words: str) -> msgspec.Raw | dict[str, Any]:
    """An upstream's `error` as it came, or what it says in a shape that Codex can read.

    `words` are the message of an error that has none.
    """
    found: object = None
    if error is not None:
        try:
            _error.decode(error)
        except UNREADABLE:
            found = _whatever(error)
        else:
            return error
    fields = found if isinstance(found, dict) else {"type": "server_error", "message": found}
    said = {key: _as_text(fields.get(key)) for key in ("code", "message")}
    return {**fields, **said, "message": said["message"] or words}


def error_status(event: Fields) -> int | None:
    """The status of an `error` event, if it is one that Codex acts upon."""
    stated = [event[key] for key in ("status", "status_code") if key in event]
    if len(stated) != 1:
        return None
    try:
        return _status.decode(stated[0])
    except UNREADABLE:
        return None


def interrupted(created: bytes) -> Event:
    """`response.incomplete`, reason `interrupted`, for the response that `created` began."""
    try:
        response: dict[str, Any] = dict(members(members(created)["response"]))
    except (KeyError, *UNREADABLE):
        response = {}
    response |= {
        "status": "incomplete",
        "incomplete_details": {"reason": "interrupted"},
        "end_turn": False,
    }
    response.pop("usage", None)
    kind = "response.incomplete"
    return event_from(msgspec.json.encode({"type": kind, "response": response}), kind)


def prewarmed(response: str, model: str | None, wall: float) -> tuple[bytes, bytes]:
    """`response.created` and `response.completed` for a prewarm, which no model sees."""
    body: dict[str, Any] = {
        "id": response,
        "object": "response",
        "created_at": int(wall),
        "model": model,
        "status": "in_progress",
        "output": [],
    }
    created = msgspec.json.encode({"type": "response.created", "response": body})
    body |= {"status": "completed", "usage": {}}
    _fill(body["usage"])
    return created, msgspec.json.encode({"type": "response.completed", "response": body})


def _whatever(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _said(usage: dict[str, Any]) -> TokenUsage:
    details = usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return TokenUsage(
        input_tokens=_count(usage.get("input_tokens")),
        cached_tokens=_count(cached),
        output_tokens=_count(usage.get("output_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fill(usage: dict[str, Any]) -> bool:
    """Add what Codex requires; True if anything was missing."""
    before = msgspec.json.encode(usage)
    for key in ("input_tokens", "output_tokens"):
        usage[key] = _count(usage.get(key)) or 0
    total = _count(usage.get("total_tokens"))
    usage["total_tokens"] = (
        usage["input_tokens"] + usage["output_tokens"] if total is None else total
    )
    for outer, inner in _REQUIRED_DETAILS:
        details = usage.get(outer)
        usage[outer] = details = details if isinstance(details, dict) else {}
        details[inner] = _count(details.get(inner)) or 0
    return msgspec.json.encode(usage) != before
