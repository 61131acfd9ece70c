"""Host and Origin: which pages may use a local port, and CORS, which lets them read answers.

A browser page must not spend a token. A page of another site sends its Origin (RFC 6454), and a
page whose name was rebound to this machine sends a Host that is not ours. Both are refused before
anything else. A page of a configured origin may read every answer, refusals and errors included,
and gets its preflights answered (Fetch standard, "CORS protocol"; Private Network Access for pages
on the internet).
"""

from collections.abc import Iterable, MutableMapping
from typing import Any, Final

from proxy.config.settings import ServerSettings
from proxy.headers import find, is_loopback
from proxy.ingress.asgi import ClientRequest, Send

_EXPOSED: Final = (
    b"retry-after, x-turnlane-refusal, x-request-id, openai-model, openai-processing-ms, "
    b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens"
)
_PREFLIGHT_SECONDS: Final = b"600"
_QUOTED_CHARACTERS: Final = 100


def foreign(headers: Iterable[tuple[bytes, bytes]], server: ServerSettings) -> str | None:
    """Return why the Host or the Origin of a request is not accepted, or None if both are."""
    pairs = list(headers)
    host = find(pairs, b"host") or ""
    name = _host_name(host)
    known = {known.lower() for known in (*server.hosts, server.host)}
    if not (is_loopback(name) or name in known):
        quoted = host[:_QUOTED_CHARACTERS]
        return f"the Host {quoted!r} is neither loopback nor one of server.hosts"
    origin = find(pairs, b"origin")
    own = (f"http://{host}", f"https://{host}")
    if origin is None or origin in own or origin in server.origins:
        return None
    return f"the Origin {origin[:_QUOTED_CHARACTERS]!r} is not one of server.origins"


def with_cors(send: Send, origin: str) -> Send:
    """Wrap `send` so that pages of `origin`, which is an accepted one, may read the answers."""
    allowed = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": [*message["headers"], *allowed]}
        await send(message)

    return sending


def is_preflight(request: ClientRequest) -> bool:
    """Return whether a browser asks what a page may send, rather than the page for something."""
    asked = find(request.headers, b"access-control-request-method")
    return request.method == "OPTIONS" and asked is not None


async def answer_preflight(request: ClientRequest) -> None:
    """Answer 204. No key is asked for: browsers send none with a preflight."""
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


def _host_name(host: str) -> str:
    """Return the name in a Host header without its port (RFC 9110 section 7.2), in lower case."""
    text = host.lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
