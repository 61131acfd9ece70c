"""App: the ASGI entry. Host and origin, then the route table, and nothing else."""

from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proxy.ingress import replies
from proxy.ingress.ask import from_headers
from proxy.ingress.body import Body
from proxy.ingress.deny import deny
from proxy.ingress.http import Receive, Scope, Send, answer_early, serve_responses
from proxy.ingress.models import serve_models
from proxy.ingress.origin import foreign
from proxy.ingress.websocket import serve_websocket
from proxy.runtime import Runtime
from proxy.status import status

Handler = Callable[[Runtime, Scope, Receive, Send], Awaitable[None]]

_PREFIXES: Final = ("/v1", "/backend-api/codex")


async def _healthz(runtime: Runtime, scope: Scope, receive: Receive, send: Send) -> None:
    await _json(send, 200, {"service": "turnlane", "status": "alive"})


async def _readyz(runtime: Runtime, scope: Scope, receive: Receive, send: Send) -> None:
    draining = runtime.admission.draining
    state = "draining" if draining else "ready"
    await _json(send, 503 if draining else 200, {"service": "turnlane", "status": state})


async def _status(runtime: Runtime, scope: Scope, receive: Receive, send: Send) -> None:
    await _json(send, 200, status(runtime))


async def _json(send: Send, code: int, document: dict[str, Any]) -> None:
    body = msgspec.json.encode(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


_ROUTES: Final = MappingProxyType(
    {
        **{("http", "POST", f"{prefix}/responses"): serve_responses for prefix in _PREFIXES},
        **{("websocket", "GET", f"{prefix}/responses"): serve_websocket for prefix in _PREFIXES},
        **{("http", "GET", f"{prefix}/models"): serve_models for prefix in _PREFIXES},
        ("http", "GET", "/healthz"): _healthz,
        ("http", "GET", "/readyz"): _readyz,
        ("http", "GET", "/status"): _status,
    }
)
_UPGRADE: Final = "WebSocket upgrade"
_TAKEN: Final = MappingProxyType(
    {
        path: [
            _UPGRADE if kind == "websocket" else method
            for kind, method, known in _ROUTES
            if known == path
        ]
        for _, _, path in _ROUTES
    }
)


class App:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = foreign(scope["headers"], self._runtime.config.server)
        if problem is not None:
            await self._refuse(scope, receive, send, "foreign_origin", problem)
            return
        method = scope.get("method", "GET")
        handler: Handler | None = _ROUTES.get((scope["type"], method, scope["path"]))
        if handler is not None:
            await handler(self._runtime, scope, receive, send)
            return
        reason, detail = _unrouted(scope["type"], method, scope["path"])
        await self._refuse(scope, receive, send, reason, detail)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, reason: str, detail: str
    ) -> None:
        runtime = self._runtime
        if scope["type"] == "websocket":
            await deny(runtime, scope, send, reason, detail)
            return
        codex = from_headers(scope["headers"]).codex
        runtime.journal.refused(reason, transport="http", wall=runtime.wall())
        no = replies.refusal(runtime, reason, codex=codex, detail=detail)
        await answer_early(runtime, Body(runtime.config.client.body_bytes, 0), receive, send, no)


def _unrouted(kind: str, method: str, path: str) -> tuple[str, str]:
    taken = _TAKEN.get(path)
    if taken is None:
        return "not_found", f"there is nothing at {path[:200]!r}"
    what = _UPGRADE if kind == "websocket" else method
    return "method_not_allowed", f"{path} does not take {what}; it takes {', '.join(taken)}"
