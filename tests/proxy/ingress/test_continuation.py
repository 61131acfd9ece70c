"""A WebSocket's increments and prewarms over an HTTP upstream: the whole conversation goes up."""

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import (
    SAID,
    completed,
    create,
    created,
    delta,
    failed,
    incomplete,
    interrupt,
    item_done,
    message,
)
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import Script, Step, answer, saying, streaming


async def test_an_increment_goes_up_after_everything_said_before(bench: Bench) -> None:
    bench.upstream.will(saying("resp_1", SAID), saying("resp_2", SAID), saying("resp_3"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(2) == [message("one"), SAID, message("two"), SAID, message("three")]
    assert "previous_response_id" not in json.loads(bench.upstream.sent[2].body)


async def test_a_whole_input_starts_the_conversation_again(bench: Bench) -> None:
    bench.upstream.will(saying("resp_1", SAID), saying("resp_2"), saying("resp_3"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("summary")))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(2) == [message("summary"), message("three")]


@pytest.mark.parametrize("previous", ["resp_0", "", "resp_1x"])
async def test_an_unknown_response_makes_the_client_send_everything(
    previous: str, bench: Bench
) -> None:
    bench.upstream.will(saying("resp_1"), saying("resp_2"))

    socket = bench.socket(headers=[("x-codex-window-id", "w:0")])
    await socket.complete_turn(create(message("one")))
    await socket.say_until("error", create(message("two"), previous=previous))
    await socket.complete_turn(create(message("one"), message("two")))

    assert (socket.refused.status, socket.refused.code) == (400, "previous_response_not_found")
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.REFUSED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 2


async def test_a_response_of_another_socket_is_unknown(bench: Bench) -> None:
    """Field case B49."""
    bench.upstream.will(saying("resp_1"))

    first, second = bench.socket(), bench.socket()
    await first.complete_turn(create())
    await second.say_until("error", create(message("and?"), previous="resp_1"))

    assert second.refused.code == "previous_response_not_found"


async def test_a_transcript_that_does_not_fit_is_not_kept(open_bench: OpenBench) -> None:
    lots = saying("resp_1", message("x" * 9000))
    bench = open_bench(lots, limits=Limits(memory_bytes=9500))

    socket = bench.socket()
    await socket.complete_turn(create(message("x" * 1000)))
    await socket.say_until("error", create(message("two"), previous="resp_1"))

    assert socket.refused.code == "previous_response_not_found"
    assert bench.held_bytes == 0


@pytest.mark.parametrize(
    ("rest", "outcome"),
    [
        ([delta(), UpstreamCut("reset")], Outcome.CUT),
        ([item_done(SAID), failed("resp_2")], Outcome.FAILED),
    ],
    ids=["cut", "failed"],
)
async def test_a_broken_turn_cannot_be_continued_but_the_one_before_it_can(
    rest: list[Step], outcome: Outcome, bench: Bench
) -> None:
    """Field case B44."""
    bench.upstream.will(
        saying("resp_1", SAID), streaming(created("resp_2"), *rest), saying("resp_3")
    )

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.say(create(message("two"), previous="resp_1"))
    await socket.wait_until(lambda: outcome in bench.outcomes)
    await socket.say_until("error", create(message("three"), previous="resp_2"))
    await socket.wait_until(lambda: bench.outcomes[-1] is Outcome.REFUSED)
    await wait_all_tasks_blocked()
    refused = socket.refused
    await socket.complete_turn(create(message("two again"), previous="resp_1"))

    assert refused.code == "previous_response_not_found"
    assert bench.input_of(2) == [message("one"), SAID, message("two again")]


async def test_a_turn_rejected_upstream_leaves_the_conversation_as_it_was(bench: Bench) -> None:
    no = Script([b'{"error":{"code":"x","message":"no"}}'], status=429)
    bench.upstream.will(saying("resp_1", SAID), no, answer("resp_2"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.say_until("error", create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("two"), previous="resp_1"))

    assert bench.input_of(2) == [message("one"), SAID, message("two")]


async def test_an_incomplete_response_can_be_continued_by_the_id_of_its_last_event(
    bench: Bench,
) -> None:
    first = streaming(created("resp_0"), item_done(SAID), incomplete("resp_1"))
    bench.upstream.will(first, saying("resp_2"))

    socket = bench.socket()
    await socket.say_until("response.incomplete", create(message("one")))
    await socket.complete_turn(create(message("go on"), previous="resp_1"))

    assert bench.input_of(1) == [message("one"), SAID, message("go on")]


async def test_an_interrupted_response_can_be_continued_the_moment_it_has_ended(
    bench: Bench,
) -> None:
    first = streaming(created("resp_1"), item_done(SAID), delta("partial"), trio.Event())
    bench.upstream.will(first, saying("resp_2"))

    socket = bench.socket()
    await socket.say_until("response.output_text.delta", create(message("one")))
    steered = create(message("no, this"), previous="resp_1")
    socket.on_event = lambda kind: (
        socket.say_nowait(steered) if kind == "response.incomplete" else None
    )
    await socket.say_until("response.completed", interrupt("resp_1"))

    assert bench.input_of(1) == [message("one"), SAID, message("no, this")]
    assert bench.outcomes == [Outcome.INTERRUPTED, Outcome.COMPLETED]


# Byte for byte.


async def test_calls_and_their_outputs_go_up_byte_for_byte(bench: Bench) -> None:
    raw = b'{"type" :"function_call","call_id":"call_1", "arguments":"{\\u007d","x":1,"x":2.50}'
    done = b'data: {"type":"response.output_item.done","item": ' + raw + b" }\n\n"
    bench.upstream.will(streaming(created(), done, completed("resp_1")), saying("resp_2"))
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


async def test_a_long_history_is_joined_and_not_parsed(bench: Bench) -> None:
    odd = '{"type":"message", "content":"\\u0041\\/","content":"twice", "n":1.0e+2,\t"deep":[[{}]]}'
    history = ",\n  ".join([odd] * 8000)
    bench.upstream.will(saying("resp_1", SAID), saying("resp_2"))

    socket = bench.socket()
    await socket.complete_turn('{"type":"response.create","input": [ ' + history + " ]}")
    await socket.complete_turn(create(message("two"), previous="resp_1"))

    first, second = (sent.body for sent in bench.upstream.sent)
    assert b'"input":[' + history.encode() + b"]" in first
    assert b'"input":[' + history.encode() + b"," in second
    assert second.endswith(json.dumps(message("two")).encode() + b"]}")


async def test_a_frame_becomes_a_post_with_its_own_keys_and_headers(bench: Bench) -> None:
    """Field case B79."""
    bench.upstream.will(saying("resp_1"))
    handshake = [("authorization", "Bearer x"), ("thread-id", "stale")]
    metadata = {"x-codex-turn-state": "state"}

    socket = bench.socket(headers=handshake, query=b"q=1")
    await socket.complete_turn(
        create(
            thread="child",
            session="root",
            parent="root",
            metadata=metadata,
            prompt_cache_key="root",
            tools=[{"name": "shell"}],
            generate=True,
        )
    )

    sent = bench.upstream.sent[0]
    body = json.loads(sent.body)
    own = {"model", "stream", "input", "client_metadata", "prompt_cache_key", "tools"}
    assert body.keys() == own
    assert (body["stream"], body["prompt_cache_key"]) == (True, "root")
    assert sent.request.query == b"q=1"
    assert sent.header("authorization") == ["Bearer x"]
    assert sent.header("thread-id") == ["child"]
    assert sent.header("x-codex-turn-state") == ["state"]
    assert bench.records[0].worker


# Prewarms.


@pytest.mark.parametrize("said", [[message("instructions")], []], ids=["said", "empty"])
async def test_a_prewarm_is_answered_here_and_remembered(
    said: list[dict[str, str]], bench: Bench
) -> None:
    bench.upstream.will(saying("resp_1"))

    socket = bench.socket()
    prewarm = {"type": "response.create", "generate": False, "input": said}
    await socket.complete_turn(json.dumps(prewarm))
    answered = socket.events[-1]["response"]
    admitted = bench.runtime.admission.statistics().turns.admitted
    await socket.complete_turn(create(message("one"), previous=answered["id"]))

    assert socket.types[:2] == ["response.created", "response.completed"]
    assert answered["id"].startswith("resp_")
    assert answered["usage"]["total_tokens"] == 0
    assert admitted == 0
    assert bench.input_of(0) == [*said, message("one")]
    assert len(bench.records) == 1


async def test_a_prewarm_replaces_the_running_turn(bench: Bench) -> None:
    bench.upstream.will(streaming(created("resp_1"), trio.Event()), saying("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.complete_turn(create(message("again"), generate=False))
    name = socket.events[-1]["response"]["id"]
    await socket.complete_turn(create(message("one"), previous=name))

    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.input_of(1) == [message("again"), message("one")]


async def test_a_prewarm_does_not_drop_the_end_of_a_turn(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), delta() + completed(), trio.Event()))

    socket = bench.socket()
    socket.stop_reading()
    await socket.say(create())
    await wait_all_tasks_blocked()
    socket.read_on()
    await socket.wait_for("response.created")
    await socket.say(create(message("again"), generate=False))
    await socket.wait_for("response.completed", 2)

    assert bench.outcomes == [Outcome.COMPLETED]
    assert [kind.removeprefix("response.") for kind in socket.types] == [
        *("created", "output_text.delta", "completed"),
        *("created", "completed"),
    ]


async def test_a_prewarm_said_while_a_turn_ends_is_what_can_be_continued(bench: Bench) -> None:
    closing = trio.Event()
    ends_slowly = Script((created("resp_1"), completed("resp_1")), closing=closing)
    bench.upstream.will(ends_slowly, saying("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await wait_all_tasks_blocked()
    await socket.say(create(message("again"), generate=False))
    closing.set()
    await socket.wait_for("response.completed", 2)
    name = socket.events[-1]["response"]["id"]
    await socket.complete_turn(create(message("one"), previous=name))

    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert bench.input_of(1) == [message("again"), message("one")]


async def test_a_refusal_after_a_prewarm_is_not_dropped_with_the_replaced_turn(
    bench: Bench,
) -> None:
    closing = trio.Event()
    bench.upstream.will(Script([created(), trio.Event()], closing=closing))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.say(create(message("again"), generate=False))
    await socket.say("junk")
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("error")

    assert socket.types == ["response.created", "response.created", "response.completed", "error"]
