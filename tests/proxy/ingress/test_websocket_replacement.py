"""A `response.create` while a turn runs on its WebSocket: it replaces the turn, or is refused."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import SocketClient
from tests.testkit.events import completed, create, created, delta, interrupt, message
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import Script, Step, answer, streaming


def endless(name: str = "resp_1", closing: trio.Event | None = None) -> Script:
    """Its turn ends, once it is cancelled, when `closing` is set."""
    return Script((created(name), delta(name), trio.Event()), closing=closing)


async def running(bench: Bench, thread: str = "thread") -> SocketClient:
    """A socket whose first turn is in mid-stream."""
    return await bench.turn(Transport.WEBSOCKET, thread=thread, until="response.output_text.delta")


def responses(socket: SocketClient) -> list[str | None]:
    """The id of the response in each event, None for those that name none."""
    return [event.get("response", {}).get("id") for event in socket.events]


async def test_a_new_create_replaces_the_running_turn(bench: Bench) -> None:
    """Field case B03: released, then admitted, in one step; no event of the first after that."""
    bench.upstream.will(endless("resp_1"), answer("resp_2"))

    socket = await running(bench)
    await socket.complete_turn(create())

    assert bench.log[:5] == [
        "admitted 1",
        "socket 1 sees response.created",
        "socket 1 sees response.output_text.delta",
        "released 1",
        "admitted 2",
    ]
    assert [event.get("delta") for event in socket.events] == [None, "resp_1", None, "hello", None]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.upstream.sent[0].closed
    await socket.hang_up()
    await socket.wait_returned()
    assert bench.at_rest


# What the client hears of the replaced turn.


async def test_events_of_the_replaced_turn_that_were_not_written_are_dropped(bench: Bench) -> None:
    go, more = trio.Event(), trio.Event()
    first = streaming(created("resp_1"), go, delta("in hand"), more, delta("late"), trio.Event())
    bench.upstream.will(first, answer("resp_2", "new"))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    socket.stop_reading()
    await wait_all_tasks_blocked()
    for event in (go, more):
        event.set()
        await wait_all_tasks_blocked()
    await socket.say(create())
    await wait_all_tasks_blocked()
    socket.read_on()
    await socket.wait_for("response.completed")

    assert "late" not in [event.get("delta") for event in socket.events]
    assert socket.types[-1] == "response.completed"


@pytest.mark.parametrize(
    "last",
    [completed("resp_1"), UpstreamCut("reset"), ValueError("a bug")],
    ids=["completed", "cut", "raised"],
)
async def test_a_turn_that_ends_the_moment_it_is_replaced_says_nothing_of_it(
    last: Step, bench: Bench
) -> None:
    now = trio.Event()
    bench.upstream.will(streaming(created("resp_1"), now, last), answer("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.say(create(), meanwhile=now.set)
    await socket.wait_until(lambda: bench.outcomes.count(Outcome.COMPLETED) == 1)
    await wait_all_tasks_blocked()

    assert responses(socket) == ["resp_1", "resp_2", None, "resp_2"]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]


async def test_events_that_arrive_the_moment_their_turn_is_replaced_are_dropped(
    bench: Bench,
) -> None:
    now, more = trio.Event(), trio.Event()
    bench.upstream.will(
        streaming(now, created("resp_1"), trio.Event()),
        streaming(created("resp_2"), more, delta("late"), trio.Event()),
        answer("resp_3", "new"),
    )

    socket = await bench.turn(Transport.WEBSOCKET)
    await wait_all_tasks_blocked()
    await socket.say(create(), meanwhile=now.set)
    await socket.wait_for("response.created")
    await socket.say(create(), meanwhile=more.set)
    await socket.wait_for("response.completed")

    assert responses(socket) == ["resp_2", "resp_3", None, "resp_3"]
    assert socket.events[2]["delta"] == "new"


async def test_a_turn_that_is_replaced_while_it_is_being_interrupted_says_nothing_more(
    bench: Bench,
) -> None:
    closing = trio.Event()
    bench.upstream.will(endless("resp_1", closing), answer("resp_2"))

    socket = await running(bench)
    await socket.say(interrupt())
    await socket.say(create())
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("response.completed")

    assert "response.incomplete" not in socket.types
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]


# Which turn gets the place.


@pytest.mark.parametrize("reason", ["memory_at_capacity", "lane_busy"])
async def test_a_refused_replacement_leaves_the_first_turn_running(
    reason: str, open_bench: OpenBench
) -> None:
    """Field case B03, the other way round."""
    go = trio.Event()
    first = streaming(created("resp_1"), delta(), go, completed("resp_1"))
    bench = open_bench(first, endless("resp_2"), limits=Limits(memory_bytes=20_000))

    socket = await running(bench)
    await running(bench, thread="theirs")
    await socket.say_until(
        "error",
        create(thread="theirs") if reason == "lane_busy" else create(message("x" * 30_000)),
    )
    go.set()
    await socket.wait_for("response.completed")

    assert (socket.refused.status, socket.refused.reason) == (503, reason)
    assert socket.refused.retry_after == "2"
    assert socket.types[2:] == ["error", "response.completed"]
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 2


async def test_a_replacement_needs_no_free_place_and_no_rival_gets_its_place(
    open_bench: OpenBench,
) -> None:
    closing = trio.Event()
    limits = Limits(turns=1, lanes=1, lanes_kept=0)
    bench = open_bench(endless("resp_1", closing), answer("resp_2"), limits=limits)

    socket = await running(bench)
    await socket.say(create())
    await wait_all_tasks_blocked()
    rivals = [await bench.post(thread=f"rival {i}").wait_returned() for i in range(5)]
    closing.set()
    await socket.wait_for("response.completed")

    assert {rival.refused.reason for rival in rivals} == {"lanes_at_capacity"}
    assert bench.outcomes == [Outcome.REFUSED] * 5 + [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.log[3:5] == ["released 1", "admitted 2"]


@pytest.mark.parametrize("fits", [True, False])
async def test_a_third_create_takes_the_place_of_the_waiting_one_if_it_fits(
    fits: bool, open_bench: OpenBench
) -> None:
    closing = trio.Event()
    limits = Limits(memory_bytes=20_000)
    bench = open_bench(endless("resp_1", closing), answer("resp_2"), limits=limits)

    socket = await running(bench)
    await socket.say(create(message("second")))
    await wait_all_tasks_blocked()
    await socket.say(create(message("third" if fits else "x" * 30_000)))
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_for("response.completed")

    assert bench.input_of(1) == [message("third" if fits else "second")]
    assert bench.outcomes.count(Outcome.REPLACED) == (2 if fits else 1)
    assert ("error" in socket.types) is not fits
    assert bench.runtime.admission.statistics().turns.admitted == 2
    await socket.hang_up()
    await socket.wait_returned()
    assert bench.at_rest


@pytest.mark.parametrize("granted", [False, True], ids=["while it waits", "as it is granted"])
async def test_a_hang_up_before_a_replacement_begins_frees_both_places(
    granted: bool, bench: Bench
) -> None:
    closing = trio.Event()
    bench.upstream.will(endless("resp_1", closing), answer("resp_2"))

    socket = await running(bench)
    await socket.say(create(thread="another"))
    await wait_all_tasks_blocked()
    if granted:
        closing.set()
    await socket.hang_up()
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_returned()

    assert bench.at_rest
    assert sorted(bench.outcomes) == [Outcome.CLIENT_GONE, Outcome.REPLACED]


async def test_of_two_creates_that_arrive_together_the_second_runs(bench: Bench) -> None:
    bench.upstream.will(answer("resp_2"), answer("resp_2"))

    socket = bench.socket()
    socket.say_nowait(create(message("first")))
    socket.say_nowait(create(message("second")))
    await socket.wait_for("response.completed")

    assert bench.input_of(len(bench.upstream.sent) - 1) == [message("second")]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert socket.types.count("response.created") == 1


async def test_of_creates_that_arrive_while_a_turn_ends_the_last_runs(bench: Bench) -> None:
    first = streaming(created("resp_1"), completed("resp_1"), trio.Event())
    bench.upstream.will(first, answer("resp_3"))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await wait_all_tasks_blocked()
    await socket.say(create(message("second")))
    await socket.say(create(message("third")))
    await socket.wait_for("response.completed", 2)

    assert bench.input_of(1) == [message("third")]
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]


async def test_a_create_replaces_one_that_waits_for_another_connection(bench: Bench) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created(), go, completed()), answer("resp_3"))

    await bench.post().wait_for("response.created")
    socket = bench.socket()
    await socket.say(create(message("second")))
    await trio.sleep(0.5)
    await socket.say(create(message("third")))
    await trio.sleep(0.9)
    go.set()
    await socket.wait_for("response.completed")

    assert bench.input_of(1) == [message("third")]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED, Outcome.COMPLETED]
