"""A scripted Responses service over HTTP/1.1 that remembers every request it was sent.

A script is called with each request and returns the steps of its answer. A dict is sent as an
event, a number is slept, a `trio.Event` is waited for, a `Reply` answers without a stream. The
response head goes out with the first event, so steps before it hold the head back too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import trio

from tests.codex.client import HOST, receive
from tests.codex.events import Event, Item, message, response
from tests.codex.log import Log

TERMINAL = {"response.completed", "response.failed", "response.incomplete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


Step = Event | float | trio.Event | Reply
Script = Callable[["Request"], Iterable[Step]]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One POST of a turn, and how it ended."""

    number: int
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    began: float
    ended: float | None = None
    status: int | None = None
    concluded: bool = False
    """Whether the answer had been made to its end; leaving after that is no hang-up."""
    hung_up: bool = False
    streaming: trio.Event = field(default_factory=trio.Event, repr=False)
    """Set when the first events have been handed to the socket."""

    @property
    def response_id(self) -> str:
        return f"resp_{self.number}"

    @property
    def thread(self) -> str:
        return self.headers["thread-id"]

    @property
    def input(self) -> list[Item]:
        items: list[Item] = self.body["input"]
        return items

    def says(self, text: str) -> bool:
        """Whether `text` stands anywhere in the input."""
        return text in json.dumps(self.input, ensure_ascii=False)


def answer(text: str) -> Script:
    """A script that says the same to everybody."""
    return lambda request: response(request.response_id, message(text))


class Upstream:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.requests: Log[Request] = Log()
        self.other_targets: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    async def wait_ended(self, request: Request, *, seconds: float = 20) -> None:
        await self.requests.wait(
            lambda seen: seen is request and seen.ended is not None, seconds=seconds
        )

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, with as many requests as the client likes to send on it."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            while (head := await read_request(stream, connection)) is not None:
                if not await self._respond(stream, connection, *head):
                    return
                connection.start_next_cycle()

    async def _respond(
        self, stream: trio.SocketStream, connection: h11.Connection, head: h11.Request, body: bytes
    ) -> bool:
        """Whether the connection can carry another request."""
        target = head.target.decode()
        path = target.partition("?")[0]
        if (head.method, path) != (b"POST", "/v1/responses"):
            self.other_targets.append(f"{head.method.decode()} {target}")
            reply = _MODELS if path == "/v1/models" else _NOT_FOUND
            await stream.send_all(reply_bytes(connection, reply))
            return connection.our_state is h11.DONE
        request = Request(
            number=len(self.requests) + 1,
            headers={name.decode(): value.decode() for name, value in head.headers},
            body=json.loads(body),
            began=trio.current_time(),
        )
        self.requests.append(request)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, stream, connection, request, nursery.cancel_scope)
            await _play(stream, connection, request, self.script(request))
            nursery.cancel_scope.cancel()
        request.ended = trio.current_time()
        self.requests.changed()
        return not request.hung_up and connection.our_state is h11.DONE


async def start_upstream(nursery: trio.Nursery, script: Script) -> Upstream:
    upstream = Upstream(script)
    listen = partial(trio.serve_tcp, upstream.serve, 0, host=HOST)
    listeners: list[trio.SocketListener] = await nursery.start(listen)
    upstream.port = listeners[0].socket.getsockname()[1]
    return upstream


async def read_request(
    stream: trio.SocketStream, connection: h11.Connection
) -> tuple[h11.Request, bytes] | None:
    """The next request with its whole body; None when the client has left instead."""
    head: h11.Request | None = None
    body = bytearray()
    while True:
        await trio.lowlevel.checkpoint()
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return head, bytes(body)
        else:
            data = await receive(stream)
            if not data:
                return None
            connection.receive_data(data)


async def _watch(
    stream: trio.SocketStream,
    connection: h11.Connection,
    request: Request,
    exchange: trio.CancelScope,
) -> None:
    """Notice a client that leaves while its answer is still being made."""
    while data := await receive(stream):
        connection.receive_data(data)
    request.hung_up = not request.concluded
    exchange.cancel()


async def _play(
    stream: trio.SocketStream, connection: h11.Connection, request: Request, steps: Iterable[Step]
) -> None:
    await trio.lowlevel.checkpoint()
    try:
        for step in steps:
            if isinstance(step, trio.Event):
                await step.wait()
            elif isinstance(step, (int, float)):
                await trio.sleep(step)
            elif isinstance(step, Reply):
                request.status, request.concluded = step.status, True
                await stream.send_all(reply_bytes(connection, step))
                return
            else:
                request.concluded = step["type"] in TERMINAL
                await stream.send_all(_encode_event(connection, request, step))
                request.streaming.set()
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
    except trio.BrokenResourceError:
        request.hung_up = not request.concluded


def _encode_event(connection: h11.Connection, request: Request, event: Event) -> bytes:
    head = b""
    if request.status is None:
        request.status = 200
        headers = [("content-type", "text/event-stream"), ("x-request-id", request.response_id)]
        head = connection.send(h11.Response(status_code=200, headers=headers)) or b""
    text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
    return head + (connection.send(h11.Data(data=text.encode())) or b"")


def reply_bytes(connection: h11.Connection, reply: Reply) -> bytes:
    """A whole answer with a JSON body."""
    body = json.dumps(reply.body).encode()
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        *reply.headers,
    ]
    parts = (
        h11.Response(status_code=reply.status, headers=headers),
        h11.Data(data=body),
        h11.EndOfMessage(),
    )
    return b"".join(connection.send(part) or b"" for part in parts)


_MODELS = Reply(status=200, body={"object": "list", "data": [{"id": "gpt-5.5", "object": "model"}]})
_NOT_FOUND = Reply(status=404, body={"error": {"code": "not_found", "message": "no such path"}})
