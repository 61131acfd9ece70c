"""The scripted service itself: it answers, holds, refuses, and sees who hangs up."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from harness.wire.client import fetch
from tests.codex.events import beginning, message, refusal, response
from tests.codex.upstream import Reply, Request, Step, TurnUpstream

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


@pytest.mark.parametrize("head", [True, False], ids=["in mid-stream", "before the head"])
async def test_a_client_that_leaves_is_noticed(upstream: TurnUpstream, head: bool) -> None:
    def script(request: Request) -> list[Step]:
        held: list[Step] = [trio.Event()]
        return [*beginning(request.response_id, "slow"), *held] if head else held

    upstream.script = script
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fetch, upstream.port, "POST", PATH, body=ask("one")))
        request = await upstream.requests.wait_length(1, seconds=5)
        if head:
            with trio.fail_after(5):
                await request.streaming.wait()
        nursery.cancel_scope.cancel()
    await upstream.wait_ended(request, seconds=5)

    assert (request.hung_up, request.streaming.is_set()) == (True, head)


async def test_a_wait_that_is_not_met_says_what_was_seen(upstream: TurnUpstream) -> None:
    with pytest.raises(AssertionError, match="0 of 1"):
        await upstream.requests.wait_length(1, seconds=0.01)
    with pytest.raises(AssertionError, match="not seen"):
        await upstream.requests.wait(lambda _: False, seconds=0.01)
