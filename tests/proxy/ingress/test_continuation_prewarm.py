"""Prewarms: answered without an upstream, and remembered as the begin of a conversation."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, delta, message
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, saying, streaming


async def test_a_prewarm_is_answered_here_and_remembered(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1"))

    socket = bench.socket()
    await socket.complete_turn(create(message("instructions"), generate=False))
    answered = socket.events[-1]["response"]
    admitted = bench.runtime.admission.statistics().turns.admitted
    await socket.complete_turn(create(message("one"), previous=answered["id"]))

    assert socket.types[:2] == ["response.created", "response.completed"]
    assert answered["id"].startswith("resp_")
    assert answered["usage"]["total_tokens"] == 0
    assert admitted == 0
    assert bench.input_of(0) == [message("instructions"), message("one")]
    assert len(bench.records) == 1


async def test_an_empty_prewarm_is_remembered_too(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, saying("resp_1"))

    socket = bench.socket()
    await socket.complete_turn('{"type":"response.create","generate":false,"input":[]}')
    name = socket.events[-1]["response"]["id"]
    await socket.complete_turn(create(message("one"), previous=name))

    assert bench.input_of(0) == [message("one")]


async def test_a_prewarm_ends_the_turn_that_runs(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_1"), trio.Event()), saying("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say(create(message("again"), generate=False))
    await socket.wait_for("response.completed")
    name = socket.events[-1]["response"]["id"]
    await socket.complete_turn(create(message("one"), previous=name))

    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.input_of(1) == [message("again"), message("one")]


async def test_a_prewarm_does_not_take_the_end_of_a_turn_away(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), delta() + completed("resp_1"), trio.Event())
    bench = Bench(nursery, first)

    socket = bench.socket()
    socket.stop_reading()
    await socket.say(create())
    await wait_all_tasks_blocked()
    socket.read_on()
    await socket.wait_for("response.created")
    await socket.say(create(message("again"), generate=False))
    await socket.wait_for("response.completed", 2)

    assert bench.outcomes == [Outcome.COMPLETED]
    assert socket.types == [
        "response.created",
        "response.output_text.delta",
        "response.completed",
        "response.created",
        "response.completed",
    ]


async def test_a_prewarm_at_the_end_of_a_turn_is_the_later_word(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    ends_slowly = Script((created("resp_1"), completed("resp_1")), closing=closing)
    bench = Bench(nursery, ends_slowly, saying("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await wait_all_tasks_blocked()
    await socket.say(create(message("anew"), generate=False))
    closing.set()
    await socket.wait_for("response.completed", 2)
    name = socket.events[-1]["response"]["id"]
    await socket.complete_turn(create(message("one"), previous=name))

    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert bench.input_of(1) == [message("anew"), message("one")]


async def test_a_refusal_behind_a_prewarm_is_not_lost_with_the_turn_that_it_ended(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), trio.Event()], closing=closing)
    bench = Bench(nursery, first)

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say(create(message("again"), generate=False))
    await socket.say("junk")
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("error")

    assert socket.types == ["response.created", "response.created", "response.completed", "error"]
