"""What a WebSocket may make turnlane hold: messages that are not complete, answers, transcripts."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, message
from tests.testkit.runtime import Bench
from tests.testkit.upstream import answer, streaming


async def test_an_unfinished_message_is_held_against_the_memory_gate(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()))

    socket = bench.socket()
    await wait_all_tasks_blocked()
    assert socket.told is not None
    socket.told(5000)
    growing = bench.held_bytes
    socket.told(9000)
    grown = bench.held_bytes
    await socket.say(create())
    await socket.wait_for("response.created")

    assert (growing, grown) == (5000, 9000)
    assert bench.held_bytes == len(create())


async def test_an_unfinished_message_beyond_the_gate_ends_the_socket_with_1013(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, limits=Limits(memory_bytes=10_000))

    socket = bench.socket()
    await wait_all_tasks_blocked()
    assert socket.told is not None
    socket.told(10_000)
    socket.told(10_001)
    socket.told(20_000)
    await socket.wait_returned()

    assert socket.types == ["error"]
    assert (socket.refused.status, socket.refused.reason) == (503, "memory_at_capacity")
    assert socket.refused.retry_after == "2"
    assert socket.closed_with == 1013
    assert socket.told is None
    assert bench.at_rest
    assert [record.refusal for record in bench.records] == ["memory_at_capacity"]


async def test_an_unfinished_message_beyond_the_gate_ends_a_running_turn_with_the_socket(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=Limits(memory_bytes=10_000))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    assert socket.told is not None
    socket.told(10_001)
    await socket.wait_returned()

    assert socket.types == ["response.created", "error"]
    assert socket.refused.reason == "memory_at_capacity"
    assert socket.closed_with == 1013
    assert bench.at_rest
    assert bench.outcomes == [Outcome.REFUSED, Outcome.CLIENT_GONE]
    assert trio.current_time() < 1


async def test_a_message_beyond_the_hard_limit_leaves_one_record_and_ends_the_socket(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, client=ClientSettings(body_bytes=1000, message_bytes=2000))

    socket = bench.socket()
    await wait_all_tasks_blocked()
    assert socket.told is not None
    socket.told(2000)
    held = bench.held_bytes
    socket.told(2001)
    socket.told(2500)
    await socket.wait_returned()

    assert held == 2000
    assert (socket.refused.status, socket.refused.reason) == (413, "too_large")
    assert socket.closed_with == 1009
    assert bench.at_rest
    assert [record.refusal for record in bench.records] == ["too_large"]


async def test_what_a_client_says_after_that_is_not_heard(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), limits=Limits(memory_bytes=10_000))

    socket = bench.socket()
    await wait_all_tasks_blocked()
    assert socket.told is not None
    socket.stop_reading()
    socket.told(10_001)
    await socket.say(create())
    await wait_all_tasks_blocked()
    socket.read_on()
    await socket.wait_returned()

    assert socket.types == ["error"]
    assert bench.log == ["socket 1 sees error"]
    assert bench.at_rest


@pytest.mark.parametrize("running", [False, True])
async def test_a_client_that_makes_answers_without_reading_them_is_not_served(
    running: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created(), trio.Event()))

    socket = bench.socket()
    await socket.wait_until(lambda: socket.accepted)
    if running:
        await socket.say(create())
        await socket.wait_for("response.created")
    socket.stop_reading()
    spoken = 0
    with trio.move_on_after(1):
        while not socket.returned and spoken < 1000:
            await socket.say("junk")
            spoken += 1
            await trio.lowlevel.checkpoint()
    refused = len(bench.records)
    socket.read_on()
    await socket.wait_returned()

    assert refused < 100
    assert socket.closed_with == 1011
    assert bench.at_rest


async def test_a_transcript_is_held_for_as_long_as_its_socket_is_open(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    socket = bench.socket()
    await socket.say(create(message("x" * 1000)))
    await socket.wait_for("response.completed")
    held = bench.held_bytes
    await socket.hang_up()
    await socket.wait_returned()

    assert 1000 < held < 1200
    assert bench.at_rest


async def test_memory_pressure_takes_the_transcript_that_was_used_longest_ago(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(
        nursery,
        streaming(created("resp_1"), completed("resp_1")),
        streaming(created("resp_2"), completed("resp_2")),
        *(streaming(created("resp_3"), completed("resp_3")) for _ in range(2)),
        limits=Limits(memory_bytes=11_000),
    )

    old, young = bench.socket(), bench.socket()
    await old.say(create(message("x" * 5000), thread="old"))
    await old.wait_for("response.completed")
    await young.say(create(message("x" * 2000), thread="young"))
    await young.wait_for("response.completed")
    large = bench.socket()
    await large.say(create(message("x" * 4000), thread="large"))
    await large.wait_for("response.completed")
    await old.say(create(previous="resp_1", thread="old"))
    await old.wait_for("error")
    await young.say(create(previous="resp_2", thread="young"))
    await young.wait_for("response.created", 2)

    assert old.refused.reason == "previous_response_not_found"
    assert "error" not in young.types
