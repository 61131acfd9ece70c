"""One WebSocket, a new `response.create` while a turn runs: it replaces it, or is refused."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome
from tests.testkit.asgi import SocketClient
from tests.testkit.events import completed, create, created, delta, interrupt
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, Step, answer, streaming


def endless(name: str = "resp_1") -> Script:
    return streaming(created(name), delta(name), trio.Event())


async def running(bench: Bench, thread: str = "thread") -> SocketClient:
    """A socket whose first turn is in mid-stream."""
    socket = bench.socket()
    await socket.say(create(thread=thread))
    await socket.wait_for("response.output_text.delta")
    return socket


async def test_a_new_create_replaces_the_running_turn(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B03: released, then admitted, in one step; no event of the first after that."""
    bench = Bench(nursery, endless("resp_1"), answer("resp_2"))

    socket = await running(bench)
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert bench.log[:5] == [
        "admitted 1",
        "socket 1 sees response.created",
        "socket 1 sees response.output_text.delta",
        "released 1",
        "admitted 2",
    ]
    assert [event.get("delta") for event in socket.events] == [None, "resp_1", None, "hello", None]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
    assert bench.runtime.admission.statistics().turns.refused == 0


async def test_events_of_the_replaced_turn_that_were_not_written_never_are(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go, more = trio.Event(), trio.Event()
    first = streaming(created("resp_1"), go, delta("in hand"), more, delta("late"), trio.Event())
    bench = Bench(nursery, first, answer("resp_2", "new"))

    socket = bench.socket()
    await socket.say(create())
    await socket.wait_for("response.created")
    socket.stop_reading()
    await wait_all_tasks_blocked()
    go.set()
    await wait_all_tasks_blocked()
    more.set()
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
async def test_a_turn_that_ends_in_the_moment_of_its_replacement_says_nothing_of_it(
    last: Step, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    now = trio.Event()
    bench = Bench(nursery, streaming(created("resp_1"), now, last), answer("resp_2"))

    socket = bench.socket()
    await socket.say(create())
    await socket.wait_for("response.created")
    await socket.say(create(), meanwhile=now.set)
    await socket.wait_until(lambda: bench.outcomes.count(Outcome.COMPLETED) == 1)
    await wait_all_tasks_blocked()

    assert [event.get("response", {}).get("id") for event in socket.events] == [
        "resp_1",
        "resp_2",
        None,
        "resp_2",
    ]
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]


async def test_events_that_arrive_in_the_moment_of_the_replacement_are_not_written(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    now, more = trio.Event(), trio.Event()
    bench = Bench(
        nursery,
        streaming(now, created("resp_1"), trio.Event()),
        streaming(created("resp_2"), more, delta("late"), trio.Event()),
        answer("resp_3", "new"),
    )

    socket = bench.socket()
    await socket.say(create())
    await wait_all_tasks_blocked()
    await socket.say(create(), meanwhile=now.set)
    await socket.wait_for("response.created")
    await socket.say(create(), meanwhile=more.set)
    await socket.wait_for("response.completed")

    ids = [event.get("response", {}).get("id") for event in socket.events]
    assert ids == ["resp_2", "resp_3", None, "resp_3"]
    assert socket.events[2]["delta"] == "new"


async def test_a_turn_that_is_replaced_while_it_is_being_interrupted_says_nothing_more(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    closed = trio.Event()
    first = Script([created("resp_1"), delta("resp_1"), trio.Event()], closing=closed)
    bench = Bench(nursery, first, answer("resp_2"))

    socket = await running(bench)
    await socket.say(interrupt())
    await socket.say(create())
    await wait_all_tasks_blocked()
    closed.set()
    await socket.wait_for("response.completed")

    assert "response.incomplete" not in socket.types
    assert bench.outcomes == [Outcome.REPLACED, Outcome.COMPLETED]
