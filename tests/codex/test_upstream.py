"""The scripted service itself: it answers, holds, refuses, and sees who hangs up."""

from __future__ import annotations

import json

import trio

from harness.wire.client import fetch
from tests.codex.events import message, refusal, response
from tests.codex.upstream import Reply, TurnUpstream

PATH = "/v1/responses"


def ask(text: str) -> bytes:
    message = {"type": "message", "role": "user", "content": text}
    return json.dumps({"model": "m", "input": [message]}).encode()


async def test_a_script_is_streamed_and_the_request_remembered(upstream: TurnUpstream) -> None:
    headers = {"thread-id": "t1"}
    with trio.fail_after(5):
        await fetch(upstream.port, "POST", PATH, body=ask("one"), headers=headers)
        reply = await fetch(upstream.port, "POST", PATH, body=ask("two"), headers=headers)

    lines = reply.body.decode().split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert events == response("resp_2", message("hello"))
    first, second = upstream.requests.entries
    assert (first.thread, first.says("one"), second.says("one")) == ("t1", True, False)
    assert (first.status, first.hung_up, second.hung_up) == (200, False, False)
    assert first.ended is not None


async def test_a_reply_carries_its_status_and_headers(upstream: TurnUpstream) -> None:
    upstream.script = lambda _: [
        Reply(status=503, body=refusal("server_error", "no"), headers=(("retry-after", "3"),))
    ]
    with trio.fail_after(5):
        reply = await fetch(upstream.port, "POST", PATH, body=ask("one"))
        models = await fetch(upstream.port, "GET", "/v1/models?client_version=1")

    assert (reply.status, reply.headers["retry-after"]) == (503, "3")
    assert reply.json["error"]["message"] == "no"
    assert models.json["data"][0]["id"] == "gpt-5.5"
    assert upstream.other_targets == ["GET /v1/models?client_version=1"]
