"""CORS for configured origins: on every answer, refusals and errors included."""

from collections.abc import MutableMapping
from typing import Any, Final

from proxy.headers import find
from proxy.ingress.asgi import ClientRequest, Send

_EXPOSED: Final = (
    b"retry-after, x-turnlane-refusal, x-request-id, openai-model, openai-processing-ms, "
    b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"
)
_PREFLIGHT_SECONDS: Final = b"600"


def is_preflight(request: ClientRequest) -> bool:
    asked = find(request.headers, b"access-control-request-method")
    return request.method == "OPTIONS" and asked is not None


def with_cors(send: Send, origin: str) -> Send:
    """Return the same `send`, its answers readable by that origin's pages."""
    allowed = _allowed(origin.encode("latin-1"))

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": [*message["headers"], *allowed]}
        await send(message)

    return sending


async def answer_preflight(request: ClientRequest) -> None:
    """Answer 204: a preflight has no key, and needs none."""
    wanted = find(request.headers, b"access-control-request-headers") or ""
    headers = [
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
    ]
    if find(request.headers, b"access-control-request-private-network") is not None:
        headers.append((b"access-control-allow-private-network", b"true"))
    await request.send({"type": "http.response.start", "status": 204, "headers": headers})
    await request.send({"type": "http.response.body", "body": b"", "more_body": False})


def _allowed(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]
