"""What the tests on real sockets send and are sent: turns, frames, and scripts of an upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from harness.wire.client import WireClient, request
from harness.wire.upstream import Received, Script, ScriptedUpstream, at_once, on_go


def post(headers: Mapping[str, str] | None = None, body: bytes = b'{"stream":true}') -> bytes:
    return request("POST", "/v1/responses", headers or {}, body)


def named(thread: str, session: str | None = None, parent: str | None = None) -> dict[str, str]:
    """Return the headers that name a conversation."""
    fields = {"thread-id": thread, "session-id": session or thread}
    return fields if parent is None else {**fields, "x-codex-parent-thread-id": parent}


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def create(
    thread: str | None = None,
    *,
    session: str | None = None,
    parent: str | None = None,
    previous: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a `response.create`."""
    found: dict[str, Any] = {"type": "response.create", "model": "m", "input": [], **more}
    if thread is not None:
        metadata = {"thread_id": thread, "session_id": session or thread}
        if parent is not None:
            metadata["x-codex-parent-thread-id"] = parent
        found["client_metadata"] = metadata
    if previous is not None:
        found["previous_response_id"] = previous
    return found


async def silent(sent: Received) -> None:
    """Send not even a head until the test says so."""
    await sent.go.wait()
    await at_once(sent)


async def endless(sent: Received) -> None:
    """Send events without end, as fast as they are taken."""
    await sent.created()
    while True:
        await sent.event("response.output_text.delta", delta="x" * 4000)


def first_waits(script: Script = at_once) -> Script:
    """Keep the first turn open until the test says so; answer the others by `script`."""

    async def each(sent: Received) -> None:
        await (on_go if sent.number == 1 else script)(sent)

    return each


@asynccontextmanager
async def bystander(
    client: WireClient, upstream: ScriptedUpstream, seconds: float = 30
) -> AsyncIterator[None]:
    """Hold a turn in mid-stream, the first of `upstream`, that must end well after the block."""
    upstream.script = first_waits(upstream.script)
    await client.send(post(named("bystander")))
    sent = await upstream.wait_sent(1)
    await client.head()
    yield
    sent.go.set()
    with trio.fail_after(seconds):
        assert b"response.completed" in await client.body()
        await client.hang_up()
