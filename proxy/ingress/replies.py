"""Errors as clients see them, pure: in the two forms for HTTP and for a WebSocket.

Rules for this file: an error frame always has a status, since Codex ignores one without and waits;
advice to retry is always a whole number of seconds, at least 1. turnlane's own refusals are in
`refusals.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proxy.headers import HeaderList, retry_after
from proxy.refusal import Reason
from proxy.responses.events import error_status, readable_error
from proxy.responses.rawjson import UNREADABLE, members, text
from proxy.responses.sse import Event, event_from
from proxy.turn.ended import Rejected, WholeReply
from proxy.upstream.interface import Failure

Form = tuple[int, HeaderList, bytes]
"""A complete HTTP answer: status, headers and body."""

REFUSAL_HEADER: Final = "x-turnlane-refusal"
INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"
_UPSTREAM_RETRY_SECONDS: Final = 2
"""Advice for a 5xx without any: Codex would try six times within 7 s, then leave the WebSocket for
good."""
_CUT_RETRY_SECONDS: Final = 1
_UNSAID: Final = "the upstream reported an error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """One refusal or failure, to be written in either form."""

    status: int
    type: str
    code: str
    message: str
    retry_after: int | None = None
    reason: Reason | None = None
    """Set when turnlane itself refused: the value of `x-turnlane-refusal`."""

    more: Mapping[str, object] = field(default_factory=dict)
    """Further members of the error, which Codex shows in its own words."""

    @property
    def error(self) -> dict[str, object]:
        return {
            "type": self.type,
            "code": self.code,
            "message": self.message,
            "retryable": self.retry_after is not None,
            **self.more,
        }


def failed(failure: Failure) -> ErrorReply:
    """Return the error for an upstream that gave no reply, before anything reached the client."""
    return ErrorReply(
        status=failure.status,
        type=SERVER,
        code=failure.code,
        message=f"turnlane got no answer from the upstream: {failure.message}",
        retry_after=_UPSTREAM_RETRY_SECONDS,
    )


def cut(how: str) -> ErrorReply:
    """Return the error for a stream that broke after its first event. Only a WebSocket is told so;
    over HTTP the answer is visibly cut."""
    return ErrorReply(
        status=502,
        type=SERVER,
        code="upstream_cut",
        message=f"the upstream's stream broke: {how or 'no reason given'}",
        retry_after=_CUT_RETRY_SECONDS,
    )


def broken() -> ErrorReply:
    """Return the error for a bug in turnlane."""
    return ErrorReply(
        status=500,
        type=SERVER,
        code="internal_error",
        message="turnlane failed on this turn; see its log for the reason.",
        retry_after=_UPSTREAM_RETRY_SECONDS,
    )


def http_form(no: ErrorReply, *, close: bool) -> Form:
    """Return the error as a complete HTTP answer; `close` ends the connection after it."""
    body = msgspec.json.encode({"error": no.error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if close:
        headers.append((b"connection", b"close"))
    if no.retry_after is not None:
        headers.append((b"retry-after", b"%d" % no.retry_after))
    if no.reason is not None:
        headers.append((REFUSAL_HEADER.encode(), no.reason.encode()))
    return no.status, headers, body


def frame_form(no: ErrorReply) -> bytes:
    """Return the error as a WebSocket frame."""
    headers = {}
    if no.retry_after is not None:
        headers["retry-after"] = str(no.retry_after)
    if no.reason is not None:
        headers[REFUSAL_HEADER] = no.reason
    return _frame(no.status, no.error, headers)


def failed_event(no: ErrorReply) -> Event:
    """Return the error as `response.failed`, for a stream that has begun, with a code whose message
    Codex shows."""
    kind = "response.failed"
    error = {"code": "invalid_prompt", "message": no.message}
    response = {"id": "resp_turnlane", "object": "response", "status": "failed", "error": error}
    return event_from(msgspec.json.encode({"type": kind, "response": response}), kind)


def whole_http(reply: WholeReply, wall: float) -> Form:
    """Return an upstream's reply for HTTP, its `retry-after` in whole seconds."""
    headers = [
        (name, value)
        for name, value in reply.headers
        if name not in (b"retry-after", b"content-length")
    ]
    advice = retry_after(reply.headers, reply.status, wall)
    if advice is not None:
        headers.append((b"retry-after", b"%d" % advice))
    headers.append((b"content-length", b"%d" % len(reply.body)))
    return reply.status, headers, reply.body


def rejected_frame(rejected: Rejected, wall: float) -> bytes:
    """Return the upstream's rejection for a WebSocket."""
    try:
        stated = members(rejected.body).get("error")
    except UNREADABLE:
        stated = None
    error = readable_error(stated, rejected.body[:2000].decode("utf-8", "replace"))
    named = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in rejected.headers
        if name == b"x-request-id" or name.startswith((b"x-codex-", b"x-ratelimit-"))
    }
    named |= _advice(rejected.headers, rejected.status, wall)
    return _frame(rejected.status, error, named)


def error_event_frame(data: bytes, wall: float) -> bytes:
    """Return an `error` event as an error frame. Codex ignores one without a status, and waits."""
    try:
        event = members(data)
    except UNREADABLE:
        return frame_form(cut("an error event that is not JSON"))
    status = error_status(event) or 502
    code, message = text(event, "code"), text(event, "message")
    error: object = {"type": code or SERVER, "code": code, "message": message or _UNSAID}
    if "error" in event:
        error = readable_error(event["error"], message or _UNSAID)
    headers = _texts(event.get("headers"))
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    kept = {name: value for name, value in headers.items() if name.lower() != "retry-after"}
    return _frame(status, error, kept | _advice(pairs, status, wall))


def _advice(headers: Iterable[tuple[bytes, bytes]], status: int, wall: float) -> dict[str, str]:
    seconds = retry_after(headers, status, wall)
    if seconds is None and status >= 500:
        seconds = _UPSTREAM_RETRY_SECONDS
    return {} if seconds is None else {"retry-after": str(seconds)}


def _texts(raw: msgspec.Raw | None) -> dict[str, str]:
    """Return the members of an error event's `headers`, as text."""
    try:
        values = msgspec.json.decode(raw or b"{}", type=dict[str, str | int | float | None])
    except UNREADABLE:
        return {}
    return {name: str(value) for name, value in values.items() if value is not None}


def _frame(status: int, error: object, headers: dict[str, str]) -> bytes:
    return msgspec.json.encode(
        {"type": "error", "status": status, "error": error, "headers": headers}
    )
