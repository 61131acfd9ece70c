"""CORS for configured origins: on every answer, refusals and errors included."""

from collections.abc import MutableMapping
from typing import Any, Final

from proxy.headers import find
from proxy.ingress.asgi import Scope, Send

_EXPOSED: Final = (
    b"retry-after, x-turnlane-refusal, x-request-id, openai-model, openai-processing-ms, "
    b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"
)
_PREFLIGHT_SECONDS: Final = b"600"


def origin_of(scope: Scope) -> bytes | None:
    """The Origin of a request that the guard has let pass."""
    origin = find(scope["headers"], b"origin")
    return None if origin is None else origin.encode("latin-1")


def is_preflight(scope: Scope) -> bool:
    asked = find(scope["headers"], b"access-control-request-method")
    return scope.get("method") == "OPTIONS" and asked is not None


def with_cors(send: Send, origin: bytes) -> Send:
    """The same `send`, its answers readable by that origin's pages."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": [*message["headers"], *_allowed(origin)]}
        await send(message)

    return sending


async def answer_preflight(scope: Scope, send: Send) -> None:
    """204: a preflight brings no key, and needs none."""
    wanted = find(scope["headers"], b"access-control-request-headers") or ""
    headers = [
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
    ]
    if find(scope["headers"], b"access-control-request-private-network") is not None:
        headers.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _allowed(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]
