"""A scripted Responses service that remembers every turn it was asked for.

A script is called with each request and returns the steps of its answer. A dict is sent as an
event, a number is slept, a `trio.Event` is waited for, a `Reply` answers without a stream. The
response head goes out with the first event, so steps before it hold the head back too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import trio

from harness.wire.upstream import TERMINALS, Received, ScriptedUpstream
from harness.wire.upstream import start_upstream as start_wire
from tests.codex.events import Event, Item, message, response
from tests.codex.log import Log

MODELS = {"object": "list", "data": [{"id": "gpt-5.5", "object": "model"}]}
NOT_FOUND = {"error": {"code": "not_found", "message": "no such path"}}


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
    received: Received = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    began: float
    ended: float | None = None
    status: int | None = None
    streaming: trio.Event = field(default_factory=trio.Event, repr=False)
    """Set when the first events have been handed to the socket."""

    @property
    def headers(self) -> dict[str, str]:
        return self.received.headers

    @property
    def hung_up(self) -> bool:
        return self.received.cut.is_set()

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
        """Return whether `text` occurs anywhere in the input."""
        return text in json.dumps(self.input, ensure_ascii=False)


def answer(text: str) -> Script:
    """Return a script that gives every request the same answer."""
    return lambda request: response(request.response_id, message(text))


class TurnUpstream:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.wire = ScriptedUpstream(self._answer)
        self.requests: Log[Request] = Log()
        self.other_targets: list[str] = []

    @property
    def port(self) -> int:
        return self.wire.port

    @property
    def url(self) -> str:
        return self.wire.url

    async def wait_ended(self, request: Request, *, seconds: float = 20) -> None:
        await self.requests.wait(
            lambda seen: seen is request and seen.ended is not None, seconds=seconds
        )

    async def start(self, nursery: trio.Nursery) -> None:
        self.wire = await start_wire(nursery, self._answer)

    async def _answer(self, received: Received) -> None:
        if (received.method, received.path) != ("POST", "/v1/responses"):
            self.other_targets.append(f"{received.method} {received.target}")
            found = received.path == "/v1/models"
            await received.reply(200 if found else 404, MODELS if found else NOT_FOUND)
            return
        request = Request(
            number=len(self.requests) + 1,
            received=received,
            body=received.json,
            began=trio.current_time(),
        )
        self.requests.append(request)
        try:
            await _play(request, self.script(request))
        finally:
            request.ended = trio.current_time()
            self.requests.changed()


async def start_upstream(nursery: trio.Nursery, script: Script) -> TurnUpstream:
    upstream = TurnUpstream(script)
    await upstream.start(nursery)
    return upstream


async def _play(request: Request, steps: Iterable[Step]) -> None:
    received = request.received
    for step in steps:
        if isinstance(step, trio.Event):
            await step.wait()
        elif isinstance(step, (int, float)):
            await trio.sleep(step)
        elif isinstance(step, Reply):
            request.status = step.status
            await received.reply(step.status, step.body, step.headers)
            return
        else:
            if request.status is None:
                request.status = 200
                kind = ("content-type", "text/event-stream")
                await received.begin(200, [kind, ("x-request-id", request.response_id)])
            received.concluded = step["type"] in TERMINALS
            await received.event(step["type"], **{k: v for k, v in step.items() if k != "type"})
            request.streaming.set()
    await received.end()
