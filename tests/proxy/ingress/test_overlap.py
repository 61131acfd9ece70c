"""Two turns of one lane on two connections: the second waits for the first, for one second."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits, Overlap
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, created, delta, post
from tests.testkit.runtime import TRANSPORTS, Bench
from tests.testkit.upstream import answer, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)


@both
@pytest.mark.parametrize("overlap", list(Overlap))
async def test_a_turn_that_ends_within_the_settling_time_is_followed_by_the_next(
    transport: Transport, overlap: Overlap, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), 0.9, completed("resp_1"))
    bench = Bench(nursery, first, answer("resp_2"), limits=Limits(overlap=overlap))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = await bench.turn(transport)
    await second.wait_for("response.completed")

    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert bench.log.index("admitted 2") == bench.log.index("released 1") + 1
    assert bench.runtime.admission.statistics().lanes.peak == 1
    assert holder.complete


@both
async def test_a_turn_that_was_interrupted_by_hanging_up_is_followed_at_once(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What Codex does on every interrupt: it drops the connection and opens another."""
    bench = Bench(nursery, streaming(created("resp_1"), trio.Event()), answer("resp_2"))

    holder = await bench.turn(transport)
    await holder.wait_for("response.created")
    second = await bench.turn(transport)
    await wait_all_tasks_blocked()
    await holder.hang_up()
    await second.wait_for("response.completed")

    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED]
    assert bench.runtime.admission.statistics().turns.refused == 0
    assert trio.current_time() < 0.1


@both
async def test_a_turn_that_lives_on_has_the_second_refused_by_default(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_1"), 5.0, completed("resp_1")))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = await bench.turn(transport)
    await second.wait_until(lambda: second.complete or second.events)
    refused_at = trio.current_time()
    await holder.wait_for("response.completed")

    assert (second.refused.status, second.refused.reason) == (503, "lane_busy")
    assert second.refused.code == "server_busy"
    assert second.refused.retry_after == "2"
    assert refused_at == pytest.approx(1)
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 1


async def test_a_second_one_that_would_wait_is_refused_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), 0.9, completed("resp_1"))
    bench = Bench(nursery, first, answer("resp_2"))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = bench.post()
    await wait_all_tasks_blocked()
    third = bench.post()
    await third.wait_returned()
    refused_at = trio.current_time()
    await second.wait_returned()

    assert third.refused.reason == "lane_busy"
    assert refused_at == 0
    assert second.complete
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED, Outcome.COMPLETED]


@both
async def test_sharing_lets_both_run(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), 5.0, completed("resp_1"))
    bench = Bench(nursery, first, answer("resp_2"), limits=Limits(overlap=Overlap.SHARE))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = await bench.turn(transport)
    await second.wait_for("response.completed")
    beside = bench.turns
    await holder.wait_for("response.completed")

    assert beside == 1
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert bench.runtime.admission.statistics().turns.peak == 2
    assert bench.runtime.admission.statistics().lanes.peak == 1


@both
async def test_a_client_that_leaves_while_it_waits_is_forgotten(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first = streaming(created("resp_1"), 0.9, completed("resp_1"))
    bench = Bench(nursery, first, answer("resp_3"))

    holder = bench.post()
    await holder.wait_for("response.created")
    second = await bench.turn(transport)
    await wait_all_tasks_blocked()
    await second.hang_up()
    await second.wait_returned()
    third = bench.post()
    await third.wait_returned()

    assert third.complete
    assert bench.outcomes == [Outcome.CLIENT_GONE, Outcome.COMPLETED, Outcome.COMPLETED]
    assert len(bench.upstream.sent) == 2


@both
@pytest.mark.parametrize(("seconds", "gone"), [(8.0, False), (11.0, True)])
async def test_a_holder_whose_client_has_not_drained_for_ten_seconds_is_replaced(
    transport: Transport,
    seconds: float,
    gone: bool,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created("resp_1"), go, delta(), trio.Event()), answer())

    holder = await bench.turn(transport)
    await holder.wait_for("response.created")
    holder.stop_reading()
    go.set()
    await trio.sleep(seconds)
    second = bench.post()
    await second.wait_returned()

    assert second.complete
    assert second.status == (200 if gone else 503)
    assert bench.outcomes[0] is (Outcome.DISPLACED if gone else Outcome.REFUSED)


@both
async def test_a_holder_whose_client_is_stuck_on_a_filler_is_replaced(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_1"), trio.Event()), answer())

    holder = await bench.turn(transport)
    await holder.wait_for("response.created")
    holder.stop_reading()
    await trio.sleep(31)
    second = bench.post()
    await second.wait_returned()

    assert second.status == 200
    assert bench.outcomes == [Outcome.DISPLACED, Outcome.COMPLETED]


async def test_a_holder_whose_client_waits_for_the_upstream_is_not_taken_for_gone(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(created("resp_1"), 100.0, completed("resp_1")))

    holder = bench.post()
    await holder.wait_for("response.created")
    await trio.sleep(65)
    second = bench.post()
    await second.wait_returned()
    await holder.wait_for("response.completed")

    assert second.refused.reason == "lane_busy"


async def test_siblings_of_one_fan_out_and_strangers_never_wait_for_each_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field cases B01, B02 and B10: each of them gets a lane, or none, but no refusal."""
    askers: list[tuple[str | None, str | None, str | None]] = [
        ("child 1", "s", "p"),
        ("child 2", "s", "p"),
        ("child 3", "s", "p"),
        ("p", "s", None),
        ("p", "another", None),
        (None, "s", None),
        (None, "s", None),
        ("t", None, None),
        ("t", None, None),
    ]
    scripts = [streaming(created(), trio.Event()) for _ in askers]
    bench = Bench(nursery, *scripts)

    large = post(input="x" * 400_000)
    clients = [bench.post(large, thread=t, session=s, parent=p) for t, s, p in askers]
    await wait_all_tasks_blocked()

    assert bench.turns == len(askers)
    assert bench.lanes == 5
    assert [client.types for client in clients] == [["response.created"]] * len(askers)
