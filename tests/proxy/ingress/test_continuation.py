"""A WebSocket's increments over an HTTP upstream: the whole conversation goes up, unchanged."""

import json

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome
from tests.testkit.events import (
    SAID,
    call,
    call_output,
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
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, Step, answer, saying, streaming


async def test_an_increment_goes_up_behind_all_that_was_said(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1", SAID), saying("resp_2", SAID), saying("resp_3"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("two"), previous="resp_1"))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(2) == [message("one"), SAID, message("two"), SAID, message("three")]
    assert "previous_response_id" not in json.loads(bench.upstream.sent[2].body)


async def test_a_whole_input_starts_the_conversation_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1", SAID), saying("resp_2"), saying("resp_3"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("summary")))
    await socket.complete_turn(create(message("three"), previous="resp_2"))

    assert bench.input_of(2) == [message("summary"), message("three")]


async def test_the_id_that_counts_is_the_one_of_the_terminal_event(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_a"), completed("resp_b")), saying("resp_2"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("two"), previous="resp_b"))

    assert bench.input_of(1) == [message("one"), message("two")]


@pytest.mark.parametrize("previous", ["resp_0", "", "resp_1x"])
async def test_an_unknown_previous_response_makes_the_client_send_everything(
    previous: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1"), saying("resp_2"))

    socket = bench.socket(headers=[("x-codex-window-id", "w:0")])
    await socket.complete_turn(create(message("one")))
    await socket.say(create(message("two"), previous=previous))
    await socket.wait_for("error")
    await socket.complete_turn(create(message("one"), message("two")))

    assert (socket.refused.status, socket.refused.code) == (400, "previous_response_not_found")
    assert len(bench.upstream.sent) == 2
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.REFUSED, Outcome.COMPLETED]


async def test_a_response_of_another_socket_is_unknown(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B49."""
    bench = Bench(nursery, saying("resp_1"))

    first, second = bench.socket(), bench.socket()
    await first.complete_turn(create())
    await second.say(create(message("and?"), previous="resp_1"))
    await second.wait_for("error")

    assert second.refused.code == "previous_response_not_found"


async def test_a_transcript_that_memory_pressure_took_makes_the_client_send_everything(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1"), saying("resp_2"), limits=Limits(memory_bytes=10_000))

    idle, large = bench.socket(), bench.socket()
    await idle.complete_turn(create(message("x" * 5000), thread="idle"))
    await large.say(create(message("x" * 6000), thread="large"))
    await large.wait_for("response.completed")
    await idle.say(create(message("two"), previous="resp_1", thread="idle"))
    await idle.wait_for("error")

    assert idle.refused.code == "previous_response_not_found"
    assert bench.runtime.admission.statistics().turns.refused == 0


async def test_a_transcript_that_does_not_fit_is_not_kept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    lots = saying("resp_1", message("x" * 9000))
    bench = Bench(nursery, lots, limits=Limits(memory_bytes=9500))

    socket = bench.socket()
    await socket.complete_turn(create(message("x" * 1000)))
    await socket.say(create(message("two"), previous="resp_1"))
    await socket.wait_for("error")

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
async def test_after_a_turn_that_broke_the_next_goes_up_whole_or_is_sent_again(
    rest: list[Step], outcome: Outcome, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B44."""
    bench = Bench(
        nursery,
        saying("resp_1", SAID),
        streaming(created("resp_2"), *rest),
        saying("resp_3"),
    )

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.say(create(message("two"), previous="resp_1"))
    await socket.wait_until(lambda: outcome in bench.outcomes)
    await socket.say(create(message("three"), previous="resp_2"))
    await socket.wait_until(lambda: bench.outcomes[-1] is Outcome.REFUSED)
    await wait_all_tasks_blocked()
    refused = socket.refused
    await socket.complete_turn(create(message("two again"), previous="resp_1"))

    assert refused.code == "previous_response_not_found"
    assert bench.input_of(2) == [message("one"), SAID, message("two again")]


async def test_an_incomplete_response_can_be_continued(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), item_done(SAID), incomplete("resp_1"))
    bench = Bench(nursery, first, saying("resp_2"))

    socket = bench.socket()
    await socket.say(create(message("one")))
    await socket.wait_for("response.incomplete")
    await socket.complete_turn(create(message("go on"), previous="resp_1"))

    assert bench.input_of(1) == [message("one"), SAID, message("go on")]


async def test_an_interrupted_response_can_be_continued_on_the_byte_after_its_end(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), item_done(SAID), delta("partial"), trio.Event())
    bench = Bench(nursery, first, saying("resp_2"))

    socket = bench.socket()
    await socket.say(create(message("one")))
    await socket.wait_for("response.output_text.delta")
    steered = create(message("no, this"), previous="resp_1")
    socket.on_event = lambda kind: (
        socket.say_nowait(steered) if kind == "response.incomplete" else None
    )
    await socket.say(interrupt("resp_1"))
    await socket.wait_for("response.completed")

    assert bench.input_of(1) == [message("one"), SAID, message("no, this")]
    assert bench.outcomes == [Outcome.INTERRUPTED, Outcome.COMPLETED]


async def test_an_output_event_without_an_item_adds_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    empty = b'data: {"type":"response.output_item.done"}\n\n'
    first = streaming(created("resp_1"), empty, completed("resp_1"))
    bench = Bench(nursery, first, saying("resp_2"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.complete_turn(create(message("two"), previous="resp_1"))

    assert bench.input_of(1) == [message("one"), message("two")]


async def test_only_whole_pairs_of_tool_calls_are_replayed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    calls = [call("call_1"), call("call_2"), call("call_3")]
    first = streaming(created("resp_1"), *map(item_done, [SAID, *calls]), trio.Event())
    bench = Bench(nursery, first, saying("resp_2"))

    socket = bench.socket()
    await socket.say(create(message("one")))
    await socket.wait_for("response.output_item.done", 4)
    await socket.say(interrupt())
    await socket.wait_for("response.incomplete")
    await socket.complete_turn(create(call_output("call_2"), message("stop"), previous="resp_1"))

    assert bench.input_of(1) == [
        message("one"),
        SAID,
        call("call_2"),
        call_output("call_2"),
        message("stop"),
    ]


async def test_a_turn_that_is_refused_upstream_leaves_the_conversation_as_it_was(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    no = Script([b'{"error":{"code":"x","message":"no"}}'], status=429)
    bench = Bench(nursery, saying("resp_1", SAID), no, answer("resp_2"))

    socket = bench.socket()
    await socket.complete_turn(create(message("one")))
    await socket.say(create(message("two"), previous="resp_1"))
    await socket.wait_for("error")
    await socket.complete_turn(create(message("two"), previous="resp_1"))

    assert bench.input_of(2) == [message("one"), SAID, message("two")]
