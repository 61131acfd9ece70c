"""How the operator, a rival or the socket itself can end a turn: nothing held, told once."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits, Overlap
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, delta, interrupt, post
from tests.testkit.runtime import TRANSPORTS, Bench
from tests.testkit.upstream import JSON, Script, answer, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)


@both
async def test_a_turn_cancelled_from_outside_leaves_nothing_held(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as service:
        bench = Bench(service, streaming(created(), trio.Event()))
        client = await bench.turn(transport)
        await client.wait_for("response.created")
        service.cancel_scope.cancel()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert not client.complete


@both
async def test_a_turn_that_outlives_the_drain_is_recorded_as_a_shutdown(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as service:
        bench = Bench(service, streaming(created(), trio.Event()))
        client = await bench.turn(transport)
        await client.wait_for("response.created")
        bench.runtime.admission.close_door(10)
        with trio.move_on_after(10) as drain:
            await bench.runtime.admission.wait_idle()
        service.cancel_scope.cancel()

    assert drain.cancelled_caught
    assert bench.at_rest
    assert bench.outcomes == [Outcome.SHUTDOWN]
    assert client.types == ["response.created"]
    assert not client.complete


@both
async def test_a_turn_that_ends_during_the_drain_ends_as_ever(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), 5.0, completed()))

    client = await bench.turn(transport)
    await client.wait_for("response.created")
    bench.runtime.admission.close_door(10)
    await bench.runtime.admission.wait_idle()
    await client.wait_for("response.completed")

    assert bench.outcomes == [Outcome.COMPLETED]
    assert trio.current_time() == pytest.approx(5, abs=0.1)


@both
async def test_a_turn_displaced_by_another_connection_is_told_so_and_over(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    limits = Limits(overlap=Overlap.REPLACE)
    bench = Bench(nursery, streaming(created(), trio.Event()), answer("resp_2"), limits=limits)

    first = await bench.turn(transport)
    await first.wait_for("response.created")
    second = bench.post()
    await second.wait_returned()
    await wait_all_tasks_blocked()

    assert second.types[-1] == "response.completed"
    assert bench.outcomes == [Outcome.DISPLACED, Outcome.COMPLETED]
    assert bench.log.index("released 1") + 1 == bench.log.index("admitted 2")
    if transport is Transport.HTTP:
        error = first.events[-1]["response"]["error"]
        assert first.types == ["response.created", "response.failed"]
        assert "continued on another connection" in error["message"]
        assert first.complete
    else:
        assert first.refused.reason == "displaced"
        assert (first.refused.status, first.refused.code) == (409, "continued_elsewhere")
        assert not first.returned


async def test_a_displaced_turn_of_codex_is_told_in_the_form_whose_words_it_shows(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its frames alone may say that it is Codex."""
    limits = Limits(overlap=Overlap.REPLACE)
    bench = Bench(nursery, streaming(created(), trio.Event()), answer(), limits=limits)

    socket = bench.socket()
    await socket.say(create(metadata={"x-codex-window-id": "thread:0"}))
    await socket.wait_for("response.created")
    second = bench.post()
    await socket.wait_for("error")
    await second.wait_returned()

    assert (socket.refused.status, socket.refused.code) == (400, "invalid_prompt")
    assert socket.refused.reason == "displaced"


async def test_a_displaced_turn_whose_answer_has_not_begun_is_refused_with_a_status(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    limits = Limits(overlap=Overlap.REPLACE)
    bench = Bench(nursery, Script(before=[trio.Event()]), answer(), limits=limits)

    first = bench.post()
    await wait_all_tasks_blocked()
    second = bench.post()
    await second.wait_returned()
    await first.wait_returned()

    assert (first.refused.status, first.refused.reason) == (409, "displaced")
    assert bench.outcomes == [Outcome.DISPLACED, Outcome.COMPLETED]


async def test_a_displaced_whole_answer_is_visibly_cut(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    limits = Limits(overlap=Overlap.REPLACE)
    whole = Script([b'{"id":', trio.Event()], headers=JSON)
    bench = Bench(nursery, whole, answer(), limits=limits)

    first = bench.post(post(stream=False))
    await wait_all_tasks_blocked()
    second = bench.post()
    await second.wait_returned()
    await first.wait_returned()

    assert (first.status, first.body, first.complete) == (200, b'{"id":', False)


async def test_a_replaced_turn_is_silent_and_recorded(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), delta(), trio.Event()), answer("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.output_text.delta")
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert socket.types[2:] == [
        "response.created",
        "response.output_text.delta",
        "response.completed",
    ]
    assert bench.upstream.sent[0].closed
    await socket.hang_up()
    await socket.wait_returned()
    assert bench.at_rest


async def test_an_interrupted_turn_ends_incomplete_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_9"), delta(), trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.output_text.delta")
    await socket.say(interrupt("resp_9"))
    await socket.wait_for("response.incomplete")

    last = socket.events[-1]["response"]
    assert (last["id"], last["incomplete_details"]) == ("resp_9", {"reason": "interrupted"})
    assert last["end_turn"] is False
    assert bench.outcomes == [Outcome.INTERRUPTED]
    assert bench.upstream.sent[0].closed
    assert (bench.turns, bench.lanes) == (0, 0)
    assert socket.closed_with is None
    await socket.hang_up()
    await socket.wait_returned()
    assert bench.at_rest
