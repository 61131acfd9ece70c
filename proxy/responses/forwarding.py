"""Forwarding, pure: which headers travel up and down, and headers as events for a WebSocket.

Rules for this file: a header that no table names does not travel. Names are in lower case, as
hypercorn and `proxy.upstream` hand them over, except those of a reply.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proxy.headers import HeaderList, find, number
from proxy.keys import turnlane_key

_UP_PREFIXES: Final = (b"x-codex-", b"x-openai-", b"x-responsesapi-")
_UP: Final = frozenset(
    {
        b"authorization",
        b"session-id",
        b"session_id",
        b"thread-id",
        b"x-client-request-id",
        b"chatgpt-account-id",
        b"openai-organization",
        b"openai-project",
        b"openai-beta",
        b"originator",
        b"user-agent",
        b"version",
        b"x-oai-attestation",
        b"traceparent",
    }
)
# Headers that belong to the client's own login, and must not go up with an account's credential.
_OF_A_LOGIN: Final = frozenset(
    {
        b"authorization",
        b"chatgpt-account-id",
        b"openai-organization",
        b"openai-project",
        b"x-oai-attestation",
    }
)
_DOWN_PREFIXES: Final = (b"x-codex-", b"x-ratelimit-")
_DOWN: Final = frozenset(
    {
        b"content-type",
        b"x-request-id",
        b"retry-after",
        b"retry-after-ms",
        b"openai-processing-ms",
        b"openai-model",
        b"x-reasoning-included",
        b"x-models-etag",
    }
)
_NEVER_DOWN: Final = frozenset({b"x-codex-websocket-max-message-bytes"})
"""Codex leaves the WebSocket for HTTP, silently, rather than send a larger frame. turnlane refuses
a frame beyond its own limit in band instead."""

_TURN_HEADERS: Final = (
    ("x-codex-turn-metadata", b"x-codex-turn-metadata"),
    ("x-codex-turn-state", b"x-codex-turn-state"),
    (
        "ws_request_header_x_openai_internal_codex_responses_lite",
        b"x-openai-internal-codex-responses-lite",
    ),
)
"""Key in a frame's `client_metadata`, and the header of the POST that it becomes."""
_IDENTITY_HEADERS: Final = (
    ("thread_id", b"thread-id"),
    ("session_id", b"session-id"),
    ("x-codex-parent-thread-id", b"x-codex-parent-thread-id"),
    ("x-codex-window-id", b"x-codex-window-id"),
    ("x-openai-subagent", b"x-openai-subagent"),
)
"""The same for the identity, which is taken from the frame as a whole or not at all."""
_STALE: Final = frozenset(
    {b"session_id", *(header for _, header in (*_TURN_HEADERS, *_IDENTITY_HEADERS))}
)
"""Headers of a handshake that describe the first thing done on its socket, not a later frame. Codex
freezes them when it connects and tells the truth in each frame's `client_metadata`."""
_WEBSOCKET_BETA: Final = re.compile(rb"\s*responses_websockets=[^,]*")
# What may not be in a field value (RFC 9110 section 5.5): controls other than the tab.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def upward(headers: Iterable[tuple[bytes, bytes]], *, streamed: bool = True) -> HeaderList:
    """Return the headers of a request to the upstream: those of the client's that may go up, and
    turnlane's own. The body is sent decoded and the answer passed on as it comes, so neither the
    client's `content-encoding` nor its `accept-encoding` travels."""
    kept = [
        (name, value)
        for name, value in headers
        if (name in _UP or name.startswith(_UP_PREFIXES))
        and not (name == b"authorization" and turnlane_key(value) is not None)
    ]
    return [
        *kept,
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream" if streamed else b"application/json"),
        (b"accept-encoding", b"identity"),
    ]


def for_account(
    headers: Sequence[tuple[bytes, bytes]], credential: HeaderList, *, keep_turn_state: bool
) -> HeaderList:
    """Return `headers` with an account's credential in place of the client's own login. Turn state
    means something only to the account that gave it, so unless this one did it is left out."""
    gone = _OF_A_LOGIN if keep_turn_state else _OF_A_LOGIN | {b"x-codex-turn-state"}
    return [(name, value) for name, value in headers if name not in gone] + credential


def upward_from_frame(headers: HeaderList, metadata: Mapping[str, str]) -> HeaderList:
    """Return the headers of the POST that a `response.create` frame becomes.

    `headers` are the handshake's. A frame that names its thread replaces the whole identity, since
    the handshake's goes stale; what such a frame leaves out is absent, not the handshake's.
    """
    up = [(name, _without_websockets(name, value)) for name, value in upward(headers)]
    thread = _header_value(metadata.get("thread_id"))
    taken = _TURN_HEADERS if thread is None else (*_TURN_HEADERS, *_IDENTITY_HEADERS)
    named = [(header, _header_value(metadata.get(key))) for key, header in taken]
    fresh = [(header, value) for header, value in named if value is not None]
    replaced = {header for header, _ in fresh}
    if thread is not None:
        replaced |= _STALE
        # Codex sets `x-client-request-id` to the thread over HTTP; frames have no key for it.
        if any(name == b"x-client-request-id" for name, _ in up):
            replaced.add(b"x-client-request-id")
            fresh.append((b"x-client-request-id", thread))
    return [(name, value) for name, value in up if name not in replaced and value] + fresh


def downward(headers: Iterable[tuple[bytes, bytes]]) -> HeaderList:
    """Return the upstream's headers that go down with its reply, their names in lower case."""
    kept = []
    for raw_name, value in headers:
        name = raw_name.lower()
        if name not in _NEVER_DOWN and (name in _DOWN or name.startswith(_DOWN_PREFIXES)):
            kept.append((name, value))
    return kept


def metadata_event(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return `response.metadata` for a WebSocket, the only form in which Codex reads turn state
    there; None if there is nothing to say."""
    pairs = list(headers)
    found = {
        name: value
        for name in ("x-codex-turn-state", "openai-model")
        if (value := find(pairs, name.encode()))
    }
    if not found:
        return None
    return msgspec.json.encode({"type": "response.metadata", "headers": found})


def rate_limits_event(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return `codex.rate_limits` for a WebSocket, from the `x-codex-*` headers of an HTTP reply;
    None if they name no window."""
    pairs = list(headers)
    windows = {}
    for window in ("primary", "secondary"):
        used = number(find(pairs, f"x-codex-{window}-used-percent".encode()))
        if used is None:
            continue
        minutes = number(find(pairs, f"x-codex-{window}-window-minutes".encode()))
        reset = number(find(pairs, f"x-codex-{window}-reset-at".encode()))
        windows[window] = {
            "used_percent": used,
            "window_minutes": None if minutes is None else int(minutes),
            "reset_at": None if reset is None else int(reset),
        }
    if not windows:
        return None
    event: dict[str, object] = {"type": "codex.rate_limits", "rate_limits": windows}
    if (plan := find(pairs, b"x-codex-plan-type")) is not None:
        event["plan_type"] = plan
    has_credits = find(pairs, b"x-codex-credits-has-credits")
    if has_credits is not None:
        event["credits"] = {
            "has_credits": has_credits.lower() == "true",
            "unlimited": (find(pairs, b"x-codex-credits-unlimited") or "").lower() == "true",
            "balance": find(pairs, b"x-codex-credits-balance"),
        }
    return msgspec.json.encode(event)


def _without_websockets(name: bytes, value: bytes) -> bytes:
    """Return `openai-beta` without the value that announces WebSockets, which the upstream of a
    POST may refuse; empty if nothing is left. Other headers are returned as they are."""
    if name != b"openai-beta":
        return value
    kept = [part for part in value.split(b",") if not _WEBSOCKET_BETA.fullmatch(part)]
    return b",".join(kept).strip()


def _header_value(text: str | None) -> bytes | None:
    """Return a metadata value as a field value, or None if it could not be one."""
    value = b"" if text is None else text.strip().encode()
    return value if value and not _CONTROL.search(value) else None
