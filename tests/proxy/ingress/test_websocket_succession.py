"""Who gets a place when a WebSocket replaces its turn: the successor, or nobody who came later."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import SocketClient
from tests.testkit.events import completed, create, created, delta, message
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, answer, streaming


def endless(name: str = "resp_1") -> Script:
    return streaming(created(name), delta(name), trio.Event())


async def running(bench: Bench, thread: str = "thread") -> SocketClient:
    """A socket whose first turn is in mid-stream."""
    socket = bench.socket()
    await socket.say(create(thread=thread))
    await socket.wait_for("response.output_text.delta")
    return socket


async def test_a_replacement_that_finds_the_memory_full_is_refused_and_the_first_runs_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B03, the other way round."""
    go = trio.Event()
    first = streaming(created("resp_1"), delta(), go, completed("resp_1"))
    bench = Bench(nursery, first, limits=Limits(memory_bytes=20_000))

    socket = await running(bench)
    await socket.say(create(message("x" * 30_000)))
    await socket.wait_for("error")
    go.set()
    await socket.wait_for("response.completed")

    assert socket.refused.reason == "memory_at_capacity"
    assert (socket.refused.status, socket.refused.retry_after) == (503, "2")
    assert socket.types[2:] == ["error", "response.completed"]
    assert [record.outcome for record in bench.records] == [Outcome.REFUSED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 1


async def test_a_replacement_that_names_a_taken_lane_is_refused_and_the_first_runs_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    first = streaming(created("resp_1"), delta(), go, completed("resp_1"))
    bench = Bench(nursery, first, endless("resp_2"))

    socket = await running(bench, thread="mine")
    other = await running(bench, thread="theirs")
    await socket.say(create(thread="theirs"))
    await socket.wait_for("error")
    go.set()
    await socket.wait_for("response.completed")

    assert socket.refused.reason == "lane_busy"
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]
    assert other.types == ["response.created", "response.output_text.delta"]
    assert bench.turns == 1


async def test_a_replacement_may_name_another_lane_that_is_free(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, endless("resp_1"), answer("resp_2"))

    socket = await running(bench, thread="one")
    await socket.say(create(thread="another"))
    await socket.wait_for("response.completed")

    lanes = [record.lane for record in bench.records]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert lanes[0] != lanes[1]
    assert bench.lanes == 0


async def test_a_replacement_needs_no_free_place_and_no_competitor_gets_its_own(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), delta(), trio.Event()], closing=closing)
    bench = Bench(nursery, first, answer("resp_2"), limits=Limits(turns=1, lanes=1, lanes_kept=0))

    socket = await running(bench)
    await socket.say(create())
    await wait_all_tasks_blocked()
    rivals = [bench.post(thread=f"rival {i}") for i in range(5)]
    for rival in rivals:
        await rival.wait_returned()
    closing.set()
    await socket.wait_for("response.completed")

    assert {rival.refused.reason for rival in rivals} == {"lanes_at_capacity"}
    assert bench.outcomes == [Outcome.REFUSED] * 5 + [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.log[3:5] == ["released 1", "admitted 2"]


async def test_a_third_create_takes_the_place_of_the_waiting_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), delta(), trio.Event()], closing=closing)
    bench = Bench(nursery, first, answer("resp_3"))

    socket = await running(bench)
    await socket.say(create(message("second")))
    await wait_all_tasks_blocked()
    await socket.say(create(message("third")))
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("response.completed")

    assert [item["content"] for item in bench.input_of(1)] == ["third"]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.REPLACED, Outcome.COMPLETED]
    assert socket.events[-1]["response"]["id"] == "resp_3"
    assert bench.runtime.admission.statistics().turns.admitted == 2
    await socket.hang_up()
    await socket.wait_returned()
    assert bench.at_rest


async def test_a_third_create_that_is_refused_leaves_the_waiting_one_its_place(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), delta(), trio.Event()], closing=closing)
    bench = Bench(nursery, first, answer("resp_2"), limits=Limits(memory_bytes=20_000))

    socket = await running(bench)
    await socket.say(create(message("second")))
    await wait_all_tasks_blocked()
    await socket.say(create(message("x" * 30_000)))
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("response.completed")

    assert socket.refused.reason == "memory_at_capacity"
    assert [item["content"] for item in bench.input_of(1)] == ["second"]


async def test_a_hang_up_while_a_replacement_waits_frees_both_places(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), delta(), trio.Event()], closing=closing)
    bench = Bench(nursery, first)

    socket = await running(bench)
    await socket.say(create(thread="another"))
    await wait_all_tasks_blocked()
    await socket.hang_up()
    await wait_all_tasks_blocked()
    set_aside = bench.runtime.admission.statistics().turns.active
    closing.set()
    await socket.wait_returned()

    assert set_aside == 1
    assert bench.at_rest
    assert sorted(bench.outcomes) == [Outcome.CLIENT_GONE, Outcome.REPLACED]
    assert len(bench.upstream.sent) == 1


async def test_a_hang_up_in_the_moment_of_the_grant_gives_the_lease_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), delta(), trio.Event()], closing=closing)
    bench = Bench(nursery, first, answer("resp_2"))

    socket = await running(bench)
    await socket.say(create())
    await wait_all_tasks_blocked()
    closing.set()
    await socket.hang_up()
    await socket.wait_returned()

    assert bench.at_rest
    assert sorted(bench.outcomes) == [Outcome.CLIENT_GONE, Outcome.REPLACED]


async def test_of_two_creates_that_arrive_together_the_second_runs(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer("resp_2"), answer("resp_2"))

    socket = bench.socket()
    socket.say_nowait(create(message("first")))
    socket.say_nowait(create(message("second")))
    await socket.wait_for("response.completed")

    assert [item["content"] for item in bench.input_of(len(bench.upstream.sent) - 1)] == ["second"]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert socket.types.count("response.created") == 1


async def test_of_three_creates_at_the_end_of_a_turn_the_last_runs(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), completed("resp_1"), trio.Event())
    bench = Bench(nursery, first, answer("resp_3"))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await wait_all_tasks_blocked()
    await socket.say(create(message("second")))
    await socket.say(create(message("third")))
    await socket.wait_for("response.completed", 2)

    assert [item["content"] for item in bench.input_of(1)] == ["third"]
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]


async def test_a_create_replaces_one_that_waits_for_another_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, completed()), answer("resp_3"))

    holder = bench.post()
    await holder.wait_for("response.created")
    socket = bench.socket()
    await socket.say(create(message("second")))
    await trio.sleep(0.5)
    await socket.say(create(message("third")))
    await trio.sleep(0.9)
    go.set()
    await socket.wait_for("response.completed")

    assert [item["content"] for item in bench.input_of(1)] == ["third"]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED, Outcome.COMPLETED]


@pytest.mark.parametrize("rounds", [200])
async def test_a_storm_of_replacements_admits_each_and_leaves_nothing(
    rounds: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scripts = [streaming(created(f"resp_{i}"), trio.Event()) for i in range(rounds)]
    bench = Bench(nursery, *scripts, answer("resp_last"), limits=Limits(turns=1))

    socket = bench.socket()
    for number in range(rounds):
        await socket.say(create())
        await socket.wait_for("response.created", number + 1)
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert bench.outcomes[-1] is Outcome.COMPLETED
    assert bench.runtime.journal.statistics().outcomes == {"replaced": rounds, "completed": 1}
    assert bench.runtime.admission.statistics().turns.peak == 1
    assert "error" not in socket.types
