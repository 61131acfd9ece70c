"""Frames of the Responses WebSocket, pure: what a client's frame asks for, and the POST it becomes.

A frame is read once, at its top level: every value stays the bytes that the client sent
(`msgspec.Raw`), so unknown keys survive and a long history is not parsed and written again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from proxy.refusal import Reason, Refused
from proxy.responses.rawjson import UNREADABLE, Fields, members, text

_FRAME_ONLY: Final = frozenset({"type", "generate", "previous_response_id", "input", "stream"})
_NULL: Final = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """`response.create`. `input` holds the items of the array as bytes, without the brackets;
    `size` is the length of the frame in bytes."""

    fields: Fields
    input: bytes
    metadata: Mapping[str, str]
    previous_response_id: str | None
    prewarm: bool
    model: str | None
    size: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """`response.interrupt`: end the running response at once."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A frame that asks for nothing, such as `response.processed`."""


def read_frame(frame: bytes) -> Create | Interrupt | Ignored | Refused:
    """Return what a text frame asks for."""
    try:
        fields = members(frame)
        kind = text(fields, "type")
    except UNREADABLE as error:
        return Refused(
            reason=Reason.BAD_REQUEST, detail=f"the frame is not a valid JSON object: {error}"
        )
    if kind == "response.create":
        return _create(fields, len(frame))
    if kind == "response.interrupt":
        return Interrupt(text(fields, "response_id"))
    if kind == "response.processed":
        return Ignored()
    return Refused(
        reason=Reason.UNSUPPORTED_FRAME, detail=f"turnlane does not support frames of type {kind!r}"
    )


def post_body(fields: Fields, items: Sequence[bytes]) -> bytes:
    """Return the body of the POST: the frame's own keys, and `items` as the whole input."""
    parts = [
        msgspec.json.encode(key) + b":" + bytes(value)
        for key, value in fields.items()
        if key not in _FRAME_ONLY
    ]
    parts.append(b'"stream":true')
    parts.append(b'"input":[' + b",".join(item for item in items if item) + b"]")
    return b"{" + b",".join(parts) + b"}"


def _create(fields: Fields, size: int) -> Create | Refused:
    if "stream_id" in fields:
        detail = "stream_id needs an upstream that multiplexes streams"
        return Refused(reason=Reason.UNSUPPORTED_STREAM_ID, detail=detail)
    items = bytes(fields.get("input", msgspec.Raw(b"[]"))).strip()
    if items.startswith(b'"'):  # a string is the API's shorthand for one user message
        items = b'[{"type":"message","role":"user","content":' + items + b"}]"
    if not items.startswith(b"["):
        return Refused(reason=Reason.BAD_REQUEST, detail="input must be an array or a string")
    previous = text(fields, "previous_response_id")
    if previous is None and bytes(fields.get("previous_response_id", _NULL)) != b"null":
        return Refused(reason=Reason.BAD_REQUEST, detail="previous_response_id must be a string")
    return Create(
        fields=fields,
        input=items[1:-1].strip(),
        metadata=_metadata(fields.get("client_metadata")),
        previous_response_id=previous,
        prewarm=bytes(fields.get("generate", msgspec.Raw(b"true"))) == b"false",
        model=text(fields, "model"),
        size=size,
    )


def _metadata(raw: msgspec.Raw | None) -> dict[str, str]:
    """Return the members of `client_metadata` that are strings; others do not identify anything."""
    try:
        values = members(raw) if raw is not None else {}
    except UNREADABLE:
        return {}
    found = ((key, text(values, key)) for key in values)
    return {key: value for key, value in found if value is not None}
