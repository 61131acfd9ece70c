"""Clients that leave or stop reading: their turns end, and hold nothing."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from tests.testkit.events import completed, created, delta, failed, post
from tests.testkit.runtime import TRANSPORTS, Bench
from tests.testkit.upstream import JSON, Script, streaming

both = pytest.mark.parametrize("transport", TRANSPORTS)

BIG = delta("x" * 300_000)
"""More than an outbox holds."""


@both
@pytest.mark.parametrize(
    "script",
    [
        Script(before=[trio.Event()]),
        streaming(trio.Event()),
        streaming(created(), delta(), trio.Event()),
        streaming(b": a comment\n\n", trio.Event()),
    ],
    ids=["waiting for headers", "waiting for an event", "in mid-stream", "after a comment"],
)
async def test_a_client_that_hangs_up_cuts_its_upstream_at_once(
    transport: Transport, script: Script, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B72."""
    bench = Bench(nursery, script)

    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    assert bench.upstream.running == 1
    hung_up_at = trio.current_time()
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.upstream.sent[0].closed_at == hung_up_at
    assert not client.complete


async def test_a_client_that_hangs_up_before_a_whole_answer_cuts_its_upstream_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B72, not streaming."""
    bench = Bench(nursery, Script([b'{"id":', trio.Event()], headers=JSON))

    client = bench.post(post(stream=False))
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert client.body == b'{"id":'


async def test_a_client_that_hangs_up_while_sending_its_body_reaches_no_upstream(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery)

    client = bench.request("POST", "/v1/responses", headers=[("content-length", "1000")])
    await client.send_body(b'{"model":', more=True)
    await wait_all_tasks_blocked()
    held = (bench.turns, bench.held_bytes)
    await client.hang_up()
    await client.wait_returned()

    assert held == (1, 1000)
    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.upstream.sent == []


@both
async def test_a_client_that_closes_on_the_byte_after_the_end_has_completed_with_its_tokens(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B73: the hang-up arrives while the upstream's last bytes are waited for."""
    bench = Bench(nursery, streaming(created(), completed(), trio.Event()))

    client = await bench.turn(transport)
    await client.wait_for("response.created")
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.COMPLETED]
    assert bench.records[0].usage == TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7)


@both
async def test_a_client_that_stops_reading_holds_its_lane_for_no_more_than_30_seconds(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, BIG, BIG, BIG))

    client = await bench.turn(transport)
    await client.wait_for("response.created")
    client.stop_reading()
    go.set()
    await trio.sleep(29)
    before = bench.turns
    await trio.sleep(2)
    after = (bench.turns, bench.lanes, bench.upstream.running)
    client.read_on()
    await wait_all_tasks_blocked()

    assert (before, after) == (1, (0, 0, 0))
    assert bench.outcomes == [Outcome.CLIENT_STALLED]
    assert not client.complete
    assert client.returned is (transport is Transport.HTTP)


@both
async def test_a_small_answer_does_not_wait_for_a_client_that_stops_reading(
    transport: Transport, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, delta(), completed()))

    client = await bench.turn(transport)
    await client.wait_for("response.created")
    client.stop_reading()
    go.set()
    await wait_all_tasks_blocked()

    assert (bench.turns, bench.lanes) == (0, 0)
    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.types == ["response.created"]


async def test_a_small_whole_answer_does_not_wait_for_a_client_that_stops_reading(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b'{"id":"resp_1"}'], headers=JSON))

    client = bench.post(post(stream=False))
    client.stop_reading()
    await wait_all_tasks_blocked()

    assert (bench.turns, bench.lanes) == (0, 0)
    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.chunks == []


async def test_a_large_whole_answer_holds_its_lane_until_the_writer_has_taken_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"x" * 300_000, 1.0, b"y" * 10], headers=JSON))

    client = bench.post(post(stream=False))
    client.stop_reading()
    await trio.sleep(2)
    while_stuck = bench.turns
    client.read_on()
    await client.wait_returned()

    assert while_stuck == 1
    assert bench.at_rest
    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.complete
    assert len(client.body) == 300_010


async def test_a_whole_answer_that_its_client_never_takes_gives_its_lane_back_after_30_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, Script([b"x" * 300_000, 1.0, b"y" * 10], headers=JSON))

    client = bench.post(post(stream=False))
    client.stop_reading()
    await trio.sleep(32)
    held = (bench.turns, bench.lanes)
    client.read_on()
    await client.wait_returned()

    assert held == (0, 0)
    assert bench.outcomes == [Outcome.CLIENT_STALLED]
    assert not client.complete


@both
@pytest.mark.parametrize("last", [completed(), failed()], ids=["completed", "failed"])
async def test_a_client_that_stalls_before_the_end_still_has_the_end_waiting_for_it(
    transport: Transport, last: bytes, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, delta(), 1.0, BIG + last))

    client = await bench.turn(transport)
    await client.wait_for("response.created")
    client.stop_reading()
    go.set()
    await trio.sleep(40)
    held = (bench.turns, bench.lanes)
    client.read_on()
    await wait_all_tasks_blocked()

    assert held == (0, 0)
    assert client.types[-1].encode() in last
    assert bench.outcomes[0] in (Outcome.COMPLETED, Outcome.FAILED)
