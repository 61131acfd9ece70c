"""Clients that leave or stop reading: their turns end, and hold nothing."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.journal.record import Outcome, Transport
from proxy.responses.events import TokenUsage
from tests.testkit.events import completed, created, delta, failed, post
from tests.testkit.runtime import Bench
from tests.testkit.upstream import JSON, Script, streaming

BIG = delta("x" * 300_000)
"""More than an outbox holds."""
LARGE = Script([b"x" * 300_000, 1.0, b"y" * 10], headers=JSON)


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
    transport: Transport, script: Script, bench: Bench
) -> None:
    """Field case B72."""
    bench.upstream.will(script)

    client = await bench.turn(transport)
    await wait_all_tasks_blocked()
    running = bench.upstream.running
    hung_up_at = trio.current_time()
    await client.hang_up()
    await client.wait_returned()

    assert running == 1
    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert bench.upstream.sent[0].closed_at == hung_up_at
    assert not client.complete


async def test_a_client_that_hangs_up_before_the_end_of_a_whole_answer_cuts_its_upstream(
    bench: Bench,
) -> None:
    """Field case B72, not streaming."""
    bench.upstream.will(Script([b'{"id":', trio.Event()], headers=JSON))

    client = bench.post(post(stream=False))
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.CLIENT_GONE]
    assert client.body == b'{"id":'


async def test_a_client_that_hangs_up_while_sending_its_body_reaches_no_upstream(
    bench: Bench,
) -> None:
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


async def test_a_client_that_leaves_the_moment_a_turn_ends_has_completed_with_its_tokens(
    transport: Transport, bench: Bench
) -> None:
    """Field case B73: the hang-up arrives while the upstream's last bytes are waited for."""
    bench.upstream.will(streaming(created(), completed(), trio.Event()))

    client = await bench.turn(transport, until="response.created")
    await wait_all_tasks_blocked()
    await client.hang_up()
    await client.wait_returned()

    assert bench.at_rest
    assert bench.outcomes == [Outcome.COMPLETED]
    assert bench.records[0].usage == TokenUsage(input_tokens=100, cached_tokens=80, output_tokens=7)


async def test_a_client_that_stops_reading_holds_its_lane_for_30_seconds(
    transport: Transport, bench: Bench
) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created(), go, BIG, BIG, BIG))

    client = await bench.turn(transport, until="response.created")
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


async def test_a_small_answer_does_not_wait_for_a_client_that_stops_reading(
    transport: Transport, bench: Bench
) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created(), go, delta(), completed()))

    client = await bench.turn(transport, until="response.created")
    client.stop_reading()
    go.set()
    await wait_all_tasks_blocked()

    assert (bench.turns, bench.lanes) == (0, 0)
    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.types == ["response.created"]


async def test_a_small_whole_answer_does_not_wait_for_a_client_that_stops_reading(
    bench: Bench,
) -> None:
    bench.upstream.will(Script([b'{"id":"resp_1"}'], headers=JSON))

    client = bench.post(post(stream=False))
    client.stop_reading()
    await wait_all_tasks_blocked()

    assert (bench.turns, bench.lanes) == (0, 0)
    assert bench.outcomes == [Outcome.COMPLETED]
    assert client.chunks == []


@pytest.mark.parametrize(
    ("seconds", "held", "outcome"),
    [(2.0, 1, Outcome.COMPLETED), (32.0, 0, Outcome.CLIENT_STALLED)],
)
async def test_a_large_whole_answer_holds_its_lane_until_it_is_taken_or_for_30_seconds(
    seconds: float, held: int, outcome: Outcome, bench: Bench
) -> None:
    bench.upstream.will(LARGE)

    client = bench.post(post(stream=False))
    client.stop_reading()
    await trio.sleep(seconds)
    turns = bench.turns
    client.read_on()
    await client.wait_returned()

    assert turns == held
    assert bench.outcomes == [outcome]
    assert client.complete is (outcome is Outcome.COMPLETED)
    assert bench.at_rest


@pytest.mark.parametrize("last", [completed(), failed()], ids=["completed", "failed"])
async def test_a_client_that_reads_again_after_a_stall_still_gets_the_end(
    transport: Transport, last: bytes, bench: Bench
) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created(), go, delta(), 1.0, BIG + last))

    client = await bench.turn(transport, until="response.created")
    client.stop_reading()
    go.set()
    await trio.sleep(40)
    held = (bench.turns, bench.lanes)
    client.read_on()
    await wait_all_tasks_blocked()

    assert held == (0, 0)
    assert client.types[-1].encode() in last
    assert bench.outcomes[0] in (Outcome.COMPLETED, Outcome.FAILED)
