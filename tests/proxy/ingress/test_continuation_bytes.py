"""What a continued conversation looks like on the wire: the bytes of the client, nothing else."""

import json

import trio
from trio.testing import MockClock

from tests.testkit.events import SAID, completed, create, created, message
from tests.testkit.runtime import Bench
from tests.testkit.upstream import saying, streaming


async def test_calls_and_their_outputs_go_up_byte_for_byte(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    raw = b'{"type" :"function_call","call_id":"call_1", "arguments":"{\\u007d","x":1,"x":2.50}'
    done = b'data: {"type":"response.output_item.done","item": ' + raw + b" }\n\n"
    bench = Bench(
        nursery, streaming(created("resp_1"), done, completed("resp_1")), saying("resp_2")
    )
    output = '{ "output":"\\ud83d\\ude00","type":"function_call_output","call_id":"call_1"}'

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(
        '{"type":"response.create","input":['
        + output
        + '],"previous_response_id":"resp_1","client_metadata":{},"wholly_new":{"b":1,"b":[ ]}}',
    )

    body = bench.upstream.sent[1].body
    assert raw + b"," + output.encode() in body
    assert b'"wholly_new":{"b":1,"b":[ ]}' in body


async def test_a_long_history_is_spliced_and_never_read(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    odd = '{"type":"message", "content":"\\u0041\\/","content":"twice", "n":1.0e+2,\t"deep":[[{}]]}'
    history = ",\n  ".join([odd] * 8000)
    assert len(history) > 600_000
    bench = Bench(nursery, saying("resp_1", SAID), saying("resp_2"))

    socket = bench.socket()
    await socket.complete_turn('{"type":"response.create","input": [ ' + history + " ]}")
    await socket.complete_turn(create(message("two"), previous="resp_1"))

    first, second = (sent.body for sent in bench.upstream.sent)
    assert b'"input":[' + history.encode() + b"]" in first
    assert b'"input":[' + history.encode() + b"," in second
    assert second.endswith(json.dumps(message("two")).encode() + b"]}")


async def test_the_frame_becomes_a_post_with_its_own_keys_and_headers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B79."""
    bench = Bench(nursery, saying("resp_1"))
    metadata = {
        "x-codex-turn-state": "state",
        "x-codex-window-id": "thread:1",
        "x-openai-subagent": "collab_spawn",
        "ws_request_header_x_openai_internal_codex_responses_lite": "true",
    }

    socket = bench.socket(
        headers=[
            ("openai-beta", "responses_websockets=2026-02-06"),
            ("authorization", "Bearer x"),
            ("thread-id", "stale"),
            ("x-codex-window-id", "stale:0"),
        ],
        query=b"q=1",
    )
    frame = create(
        message("hi"),
        thread="child",
        session="root",
        parent="root",
        metadata=metadata,
        prompt_cache_key="root",
        tools=[{"name": "shell"}],
        generate=True,
    )
    await socket.complete_turn(frame)

    sent = bench.upstream.sent[0]
    body = json.loads(sent.body)
    assert body.keys() == {
        "model",
        "stream",
        "input",
        "client_metadata",
        "prompt_cache_key",
        "tools",
    }
    assert (body["stream"], body["prompt_cache_key"]) == (True, "root")
    assert sent.request.query == b"q=1"
    assert sent.header("authorization") == ["Bearer x"]
    assert sent.header("openai-beta") == []
    assert sent.header("thread-id") == ["child"]
    assert sent.header("session-id") == ["root"]
    assert sent.header("x-codex-parent-thread-id") == ["root"]
    assert sent.header("x-codex-turn-state") == ["state"]
    assert sent.header("x-codex-window-id") == ["thread:1"]
    assert sent.header("x-openai-internal-codex-responses-lite") == ["true"]
    assert bench.records[0].worker
