"""What a WebSocket may make turnlane hold: unfinished messages, unread answers, transcripts."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome
from tests.testkit.asgi import SocketClient
from tests.testkit.events import completed, create, created, message
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import answer, streaming

SMALL = Limits(memory_bytes=10_000)


async def arriving(socket: SocketClient, *unfinished: int) -> None:
    """Let a message arrive up to so many bytes, step by step."""
    await wait_all_tasks_blocked()
    assert socket.told is not None
    for size in unfinished:
        socket.told(size)


async def test_an_unfinished_message_is_held_as_it_arrives(bench: Bench) -> None:
    bench.upstream.will(streaming(created(), trio.Event()))

    socket = bench.socket()
    held = []
    for size in (5000, 9000):
        await arriving(socket, size)
        held.append(bench.held_bytes)
    await socket.say_until("response.created", create())

    assert held == [5000, 9000]
    assert bench.held_bytes == len(create())


async def test_an_unfinished_message_for_which_there_is_no_memory_ends_the_socket_with_1013(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(limits=SMALL)

    socket = bench.socket()
    await arriving(socket, 10_000, 10_001, 20_000)
    await socket.wait_returned()

    assert socket.types == ["error"]
    assert (socket.refused.status, socket.refused.reason) == (503, "memory_at_capacity")
    assert socket.refused.retry_after == "2"
    assert (socket.closed_with, socket.told) == (1013, None)
    assert bench.at_rest
    assert [record.refusal for record in bench.records] == ["memory_at_capacity"]


async def test_the_running_turn_ends_with_that_socket(open_bench: OpenBench) -> None:
    bench = open_bench(streaming(created(), trio.Event()), limits=SMALL)

    socket = bench.socket()
    await socket.say_until("response.created", create())
    await arriving(socket, 10_001)
    await socket.wait_returned()

    assert socket.types == ["response.created", "error"]
    assert socket.closed_with == 1013
    assert bench.at_rest
    assert bench.outcomes == [Outcome.REFUSED, Outcome.CLIENT_GONE]
    assert trio.current_time() < 1


async def test_what_a_client_says_after_that_is_ignored(open_bench: OpenBench) -> None:
    bench = open_bench(answer(), limits=SMALL)

    socket = bench.socket()
    await wait_all_tasks_blocked()
    socket.stop_reading()
    await arriving(socket, 10_001)
    await socket.say(create())
    await wait_all_tasks_blocked()
    socket.read_on()
    await socket.wait_returned()

    assert socket.types == ["error"]
    assert bench.log == ["socket 1 sees error"]
    assert bench.at_rest


async def test_a_message_beyond_the_hard_limit_is_recorded_once_and_ends_the_socket_with_1009(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(client=ClientSettings(body_bytes=1000, message_bytes=2000))

    socket = bench.socket()
    await arriving(socket, 2000)
    held = bench.held_bytes
    await arriving(socket, 2001, 2500)
    await socket.wait_returned()

    assert held == 2000
    assert (socket.refused.status, socket.refused.reason) == (413, "too_large")
    assert socket.closed_with == 1009
    assert bench.at_rest
    assert [record.refusal for record in bench.records] == ["too_large"]


@pytest.mark.parametrize("running", [False, True])
async def test_a_client_that_causes_answers_without_reading_them_is_disconnected(
    running: bool, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), trio.Event()))

    socket = bench.socket()
    await socket.wait_until(lambda: socket.accepted)
    if running:
        await socket.say_until("response.created", create())
    socket.stop_reading()
    with trio.move_on_after(1):
        for _ in range(1000):
            await socket.say("junk")
            await trio.lowlevel.checkpoint()
    refused = len(bench.records)
    socket.read_on()
    await socket.wait_returned()

    assert refused < 100
    assert socket.closed_with == 1011
    assert bench.at_rest


async def test_a_transcript_is_held_while_its_socket_is_open(bench: Bench) -> None:
    bench.upstream.will(answer())

    socket = bench.socket()
    await socket.complete_turn(create(message("x" * 1000)))
    held = bench.held_bytes
    await socket.hang_up()
    await socket.wait_returned()

    assert 1000 < held < 1200
    assert bench.at_rest


async def test_memory_pressure_evicts_the_transcript_used_longest_ago_and_refuses_no_turn(
    open_bench: OpenBench,
) -> None:
    replies = (streaming(created(f"resp_{n}"), completed(f"resp_{n}")) for n in range(1, 5))
    bench = open_bench(*replies, limits=Limits(memory_bytes=11_000))

    old, young = bench.socket(), bench.socket()
    await old.complete_turn(create(message("x" * 5000), thread="old"))
    await young.complete_turn(create(message("x" * 2000), thread="young"))
    await bench.socket().complete_turn(create(message("x" * 4000), thread="large"))
    await old.say_until("error", create(previous="resp_1", thread="old"))
    await young.complete_turn(create(previous="resp_2", thread="young"))

    assert old.refused.reason == "previous_response_not_found"
    assert "error" not in young.types
    assert bench.runtime.admission.statistics().turns.refused == 0
