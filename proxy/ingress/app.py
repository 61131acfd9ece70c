"""App: the ASGI entry point. Host and Origin, preflights, the caller's key, the route table."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proxy.headers import HeaderList, find
from proxy.ingress import replies
from proxy.ingress.asgi import ClientConnection, ClientRequest, Receive, Scope, Send
from proxy.ingress.auth import NOBODY, caller
from proxy.ingress.http import refuse, serve_responses
from proxy.ingress.identity import from_headers
from proxy.ingress.models import serve_models
from proxy.ingress.origin import answer_preflight, foreign, is_preflight, with_cors
from proxy.ingress.refusals import figures
from proxy.ingress.status import status
from proxy.ingress.websocket import deny, serve_websocket
from proxy.journal.record import Transport
from proxy.keys import turnlane_key
from proxy.refusal import Reason, Refused
from proxy.runtime import Runtime

logger = logging.getLogger(__name__)

Handler = Callable[[Runtime, ClientRequest], Awaitable[None]]

_PREFIXES: Final = ("/v1", "/backend-api/codex")


async def _healthz(runtime: Runtime, request: ClientRequest) -> None:
    await _json(request, 200, {"service": "turnlane", "status": "alive"})


async def _readyz(runtime: Runtime, request: ClientRequest) -> None:
    draining = runtime.admission.draining
    state = "draining" if draining else "ready"
    await _json(request, 503 if draining else 200, {"service": "turnlane", "status": state})


async def _status(runtime: Runtime, request: ClientRequest) -> None:
    await _json(request, 200, status(runtime))


async def _json(request: ClientRequest, code: int, document: dict[str, Any]) -> None:
    body = msgspec.json.encode(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await _whole(request.send, code, headers, body)


async def _whole(send: Send, code: int, headers: HeaderList, body: bytes) -> None:
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


_ROUTES: Final = MappingProxyType(
    {
        **{
            (Transport.HTTP, "POST", f"{prefix}/responses"): serve_responses for prefix in _PREFIXES
        },
        **{
            (Transport.WEBSOCKET, "GET", f"{prefix}/responses"): serve_websocket
            for prefix in _PREFIXES
        },
        **{(Transport.HTTP, "GET", f"{prefix}/models"): serve_models for prefix in _PREFIXES},
        (Transport.HTTP, "GET", "/healthz"): _healthz,
        (Transport.HTTP, "GET", "/readyz"): _readyz,
        (Transport.HTTP, "GET", "/status"): _status,
    }
)
_UPGRADE: Final = "WebSocket upgrade"
_METHODS: Final = MappingProxyType(
    {
        path: [
            _UPGRADE if transport is Transport.WEBSOCKET else method
            for transport, method, known in _ROUTES
            if known == path
        ]
        for _, _, path in _ROUTES
    }
)
_OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths for what watches the process and has no key."""
_NEED_CREDENTIAL: Final = frozenset({serve_responses, serve_websocket, serve_models})
"""Handlers that go upstream."""


class Sending:
    """Remember whether the answer has begun: after that no other can be given."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.started = True
        await self._send(message)


class App:
    """Serve one HTTP request or one WebSocket a call: ASGI, and the connection that it came on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._figures = figures(runtime.config.limits, runtime.config.client)

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, connection: ClientConnection
    ) -> None:
        request = self._read(scope, receive, send, connection)
        problem = foreign(request.headers, self._runtime.config.server)
        if problem is not None:
            await self._refuse(request, Refused(reason=Reason.FOREIGN_ORIGIN, detail=problem))
            return
        origin = find(request.headers, b"origin")
        if origin is not None:
            request = replace(request, send=with_cors(send, origin))
            if is_preflight(request):
                await answer_preflight(request)
                return
        await self._route(request)

    def _read(
        self, scope: Scope, receive: Receive, send: Send, connection: ClientConnection
    ) -> ClientRequest:
        """Read the ASGI scope, which no other function does. `_route` adds the principal."""
        return ClientRequest(
            transport=Transport(scope["type"]),
            method=scope.get("method", "GET"),
            path=scope["path"],
            query=scope["query_string"],
            headers=scope["headers"],
            identity=from_headers(scope["headers"], NOBODY),
            figures=self._figures,
            receive=receive,
            send=send,
            connection=connection,
        )

    async def _route(self, request: ClientRequest) -> None:
        """Authenticate, then call the handler. A bug is logged, and answered with 500 if the answer
        has not begun; after that the exception goes on to the server, which cuts the connection."""
        runtime = self._runtime
        sending = Sending(request.send)
        request = replace(request, send=sending)
        try:
            if request.path not in _OPEN:
                known = caller(runtime.keys, runtime.config.server.host, request.headers)
                if isinstance(known, Refused):
                    await self._refuse(request, known)
                    return
                request = replace(request, identity=replace(request.identity, principal=known))
            handler = _find(runtime, request)
            if isinstance(handler, Refused):
                await self._refuse(request, handler)
            else:
                await handler(runtime, request)
        except Exception:
            if request.transport is not Transport.HTTP or sending.started:
                raise
            logger.exception("a request failed")
            await _whole(sending, *replies.http_form(replies.broken(), close=True))

    async def _refuse(self, request: ClientRequest, refused: Refused) -> None:
        answer = deny if request.transport is Transport.WEBSOCKET else refuse
        await answer(self._runtime, request, refused)


def _find(runtime: Runtime, request: ClientRequest) -> Handler | Refused:
    """Return the handler of a request, or the reason that it has none."""
    path = request.path
    methods = _METHODS.get(path)
    if methods is None:
        return Refused(reason=Reason.NOT_FOUND, detail=f"there is no page {path[:200]!r}")
    handler = _ROUTES.get((request.transport, request.method, path))
    if handler is None:
        what = _UPGRADE if request.transport is Transport.WEBSOCKET else request.method
        detail = f"{path} does not accept {what}; it accepts {', '.join(methods)}"
        return Refused(reason=Reason.METHOD_NOT_ALLOWED, detail=detail)
    if handler in _NEED_CREDENTIAL:
        authorization = (find(request.headers, b"authorization") or "").encode("latin-1")
        if turnlane_key(authorization) is not None and not len(runtime.accounts):
            return Refused(reason=Reason.NO_CREDENTIAL)
    return handler
