"""deny: refuse a WebSocket before it is one, with a plain HTTP response."""

from proxy.ingress import replies
from proxy.ingress.asgi import Scope, Send
from proxy.ingress.ask import from_headers
from proxy.ingress.caller import NOBODY
from proxy.ingress.reasons import refusal
from proxy.runtime import Runtime


async def deny(runtime: Runtime, scope: Scope, send: Send, reason: str, detail: str = "") -> None:
    """Answer the handshake with a plain HTTP response."""
    identity = from_headers(scope["headers"], scope.get("principal", NOBODY))
    runtime.journal.refused(
        reason, transport="websocket", wall=runtime.wall(), principal=identity.principal
    )
    no = refusal(runtime, reason, codex=identity.codex, transport="websocket", detail=detail)
    status, headers, body = replies.http_form(no, close=True)
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
