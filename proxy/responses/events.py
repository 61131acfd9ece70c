"""Responses events, pure: the few that turnlane reads, completes or makes itself.

Everything else passes through as bytes that are not looked into.
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
    """The `error` that Codex can read. It ignores a frame whose error has another shape."""

    code: str | None = None
    message: str | None = None


_error: Final = msgspec.json.Decoder(_Error)
_status: Final = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=300, le=999)])
_holder: Final = msgspec.json.Decoder(_Holder)
_item_done: Final = msgspec.json.Decoder(_ItemDone)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one response; None, not 0, where the upstream did not say."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


UNKNOWN_USAGE: Final = TokenUsage()


def response_id(data: bytes) -> str:
    """Return the id of an event's response, or an empty string if it names none."""
    try:
        return _holder.decode(data).response.id
    except UNREADABLE:
        return ""


def output_item(data: bytes) -> bytes:
    """Return the item of `response.output_item.done`, byte for byte; empty if there is none."""
    try:
        return bytes(_item_done.decode(data).item)
    except UNREADABLE:
        return b""


def complete_usage(event: Event) -> tuple[Event, TokenUsage]:
    """Return a terminal event with its usage completed, and the usage as it was stated.

    Codex rejects a `response.completed` with a partial usage and sends its request again, so
    missing fields become 0 on the wire. A usage that is absent stays absent, which Codex accepts.
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
    """Return an upstream's `error` as it came if Codex can read it, else its content in a shape
    that Codex can read. `words` become the message of an error that has none."""
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
    """Return the status of an `error` event if Codex acts on it. Codex ignores an event that states
    it under both names or outside 300 to 999."""
    stated = [event[key] for key in ("status", "status_code") if key in event]
    if len(stated) != 1:
        return None
    try:
        return _status.decode(stated[0])
    except UNREADABLE:
        return None


def interrupted(created: bytes) -> Event:
    """Return `response.incomplete`, reason `interrupted`, for the response that `created` began."""
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
    """Return `response.created` and `response.completed` for a prewarm, which does not go upstream.
    `wall` is seconds since the epoch."""
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
    """Add in place what Codex requires. Return whether anything was missing."""
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
