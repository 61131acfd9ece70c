"""App: the ASGI entry. Host and origin, preflight, the caller's key, then the route table."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proxy.headers import HeaderList, find
from proxy.ingress import replies
from proxy.ingress.asgi import Receive, Scope, Send
from proxy.ingress.auth import NOBODY, Unauthenticated, caller
from proxy.ingress.body import Body
from proxy.ingress.cors import answer_preflight, is_preflight, origin_of, with_cors
from proxy.ingress.http import answer_early, serve_responses
from proxy.ingress.identity import from_headers
from proxy.ingress.models import serve_models
from proxy.ingress.origin import foreign
from proxy.ingress.refusals import deny, refusal
from proxy.ingress.status import status
from proxy.ingress.websocket import serve_websocket
from proxy.journal.outcome import Transport
from proxy.responses.forwarding import turnlane_key
from proxy.runtime import Runtime

logger = logging.getLogger("turnlane")

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
    await _whole(send, code, headers, body)


async def _whole(send: Send, code: int, headers: HeaderList, body: bytes) -> None:
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
_OPEN: Final = frozenset({"/healthz", "/readyz"})
"""What whoever watches the process may ask without a key."""
_DATA: Final = frozenset({serve_responses, serve_websocket, serve_models})
"""What goes upstream, and so needs a credential there."""


class Sending:
    """A `send` that knows whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.started = True
        await self._send(message)


class App:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = foreign(scope["headers"], self._runtime.config.server)
        if problem is not None:
            await self._refuse(scope, receive, send, "foreign_origin", problem)
            return
        origin = origin_of(scope)
        if origin is not None:
            send = with_cors(send, origin)
            if is_preflight(scope):
                await answer_preflight(scope, send)
                return
        await self._route(scope, receive, Sending(send))

    async def _route(self, scope: Scope, receive: Receive, sending: Sending) -> None:
        """Authenticate, then find the handler. A bug in it is logged, and answered if it can be."""
        try:
            if scope["path"] not in _OPEN:
                known = caller(self._runtime, scope["headers"])
                if isinstance(known, Unauthenticated):
                    await self._refuse(scope, receive, sending, "unauthorized", known.detail)
                    return
                scope["principal"] = known
            handler, reason, detail = _find(scope, accounts=len(self._runtime.accounts) > 0)
            if handler is None:
                await self._refuse(scope, receive, sending, reason, detail)
            else:
                await handler(self._runtime, scope, receive, sending)
        except Exception:
            if scope["type"] != "http" or sending.started:
                raise
            logger.exception("a request failed")
            await _whole(sending, *replies.http_form(replies.broken(), close=True))

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, reason: str, detail: str
    ) -> None:
        runtime = self._runtime
        if scope["type"] == "websocket":
            await deny(runtime, scope, send, reason, detail)
            return
        codex = from_headers(scope["headers"]).codex
        known = scope.get("principal", NOBODY)
        runtime.journal.refused(
            reason, transport=Transport.HTTP, wall=runtime.wall(), principal=known
        )
        no = refusal(runtime, reason, codex=codex, transport=Transport.HTTP, detail=detail)
        await answer_early(runtime, Body(runtime.config.client.body_bytes, 0), receive, send, no)


def _find(scope: Scope, *, accounts: bool) -> tuple[Handler | None, str, str]:
    """The handler of a request, or the reason why there is none, and its detail."""
    kind, method, path = scope["type"], scope.get("method", "GET"), scope["path"]
    taken = _TAKEN.get(path)
    if taken is None:
        return None, "not_found", f"there is nothing at {path[:200]!r}"
    handler = _ROUTES.get((kind, method, path))
    if handler is None:
        what = _UPGRADE if kind == "websocket" else method
        detail = f"{path} does not take {what}; it takes {', '.join(taken)}"
        return None, "method_not_allowed", detail
    authorization = (find(scope["headers"], b"authorization") or "").encode("latin-1")
    if not accounts and handler in _DATA and turnlane_key(authorization) is not None:
        return None, "no_credential", ""
    return handler, "", ""
