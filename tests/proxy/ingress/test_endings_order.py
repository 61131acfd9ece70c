"""The end of a turn: before its client sees it, the lease is back and the record is written."""

from itertools import count

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits, WorkflowLimits
from proxy.errors import UpstreamCut
from proxy.journal.record import Outcome, Transport
from tests.testkit.asgi import HttpClient
from tests.testkit.events import (
    completed,
    create,
    created,
    delta,
    failed,
    incomplete,
    interrupt,
    message,
)
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import Step, rejecting, streaming

ROUNDS = 2000
REQUESTS = 1000
UNBOUNDED = Limits(workflow=WorkflowLimits(sends=ROUNDS))
TURNS_OF_A_CONVERSATION = 25


def told_before_released(log: list[str], kind: str) -> int:
    """Count the turns whose client was told about the end while they held their lease."""
    held = early = 0
    for line in log:
        held += line.startswith("admitted ") - line.startswith("released ")
        early += line.endswith(f" sees {kind}") and held > 0
    return early


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ([completed()], "response.completed"),
        ([failed()], "response.failed"),
        ([incomplete()], "response.incomplete"),
        ([delta() + completed() + delta()], "response.completed"),
        ([completed(), 0.004, b": late\n\n"], "response.completed"),
        ([completed(), trio.Event()], "response.completed"),
        ([completed(), UpstreamCut("reset on closing")], "response.completed"),
    ],
    ids=["completed", "failed", "incomplete", "one chunk", "late bytes", "open end", "reset"],
)
async def test_the_terminal_event_leaves_after_the_lease_is_back_and_the_record_written(
    transport: Transport, last: list[Step], kind: str, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), delta(), *last))
    recorded: list[int] = []

    client = await bench.turn(transport)
    client.on_event = lambda _type: recorded.append(len(bench.records))
    await client.wait_for(kind)

    assert bench.log[0] == "admitted 1"
    assert "released 1" in bench.log
    assert told_before_released(bench.log, kind) == 0
    assert recorded[-1] == 1
    assert client.types[-1] == kind
    assert trio.current_time() < 0.01


async def test_an_error_frame_leaves_after_the_lease_is_back(bench: Bench) -> None:
    bench.upstream.will(
        streaming(created(), UpstreamCut("reset")), rejecting(500, b"{}"), streaming(b"")
    )

    socket = await bench.turn(Transport.WEBSOCKET, until="error")
    await socket.say_until("error", create())

    assert told_before_released(bench.log, "error") == 0


async def test_an_increment_sent_the_moment_a_turn_ends_is_admitted_every_time(
    open_bench: OpenBench,
) -> None:
    scripts = (streaming(created(), completed(f"resp_{i}")) for i in range(ROUNDS))
    bench = open_bench(*scripts, limits=UNBOUNDED)
    rounds = count(1)
    socket = bench.socket()

    def answer_at_once(kind: str) -> None:
        if kind == "response.completed" and (number := next(rounds)) < ROUNDS:
            fresh = number % TURNS_OF_A_CONVERSATION == 0
            previous = None if fresh else f"resp_{number - 1}"
            socket.say_nowait(create(message("go on"), previous=previous))

    socket.on_event = answer_at_once
    await socket.say(create())
    await socket.wait_for("response.completed", ROUNDS)

    turns = bench.runtime.admission.statistics().turns
    assert bench.runtime.journal.statistics().outcomes == {"completed": ROUNDS}
    assert (turns.admitted, turns.refused, turns.peak) == (ROUNDS, 0, 1)
    assert "error" not in socket.types
    assert told_before_released(bench.log, "response.completed") == 0
    assert len(bench.input_of(ROUNDS - 1)) == TURNS_OF_A_CONVERSATION


async def test_a_request_sent_the_moment_a_turn_ends_is_admitted_every_time(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(
        *(streaming(created(), completed()) for _ in range(REQUESTS)), limits=UNBOUNDED
    )
    clients: list[HttpClient] = []

    def ask_at_once(kind: str = "response.completed") -> None:
        if kind == "response.completed" and len(clients) < REQUESTS:
            clients.append(bench.post())
            clients[-1].on_event = ask_at_once

    ask_at_once()
    while len(clients) < REQUESTS:
        await clients[-1].wait_returned()
    await clients[-1].wait_returned()

    turns = bench.runtime.admission.statistics().turns
    assert bench.runtime.journal.statistics().outcomes == {"completed": REQUESTS}
    assert (turns.admitted, turns.refused, turns.peak) == (REQUESTS, 0, 1)
    assert told_before_released(bench.log, "response.completed") == 0
    assert all(client.complete for client in clients)


async def test_a_frame_that_comes_after_the_end_was_read_upstream_replaces_nothing(
    bench: Bench,
) -> None:
    bench.upstream.will(
        streaming(created("resp_1"), completed("resp_1"), trio.Event()),
        streaming(created("resp_2"), completed("resp_2")),
    )

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await wait_all_tasks_blocked()
    held = bench.turns
    await socket.say(create())
    await socket.wait_for("response.completed", 2)

    assert held == 1
    ids = [event["response"]["id"] for event in socket.events]
    assert ids == ["resp_1", "resp_1", "resp_2", "resp_2"]
    assert bench.outcomes == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert bench.log.index("released 1") < bench.log.index("admitted 2")


async def test_an_interrupt_that_comes_after_the_end_was_read_upstream_ends_nothing(
    bench: Bench,
) -> None:
    bench.upstream.will(streaming(created(), completed(), trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await wait_all_tasks_blocked()
    await socket.say_until("response.completed", interrupt())

    assert socket.types == ["response.created", "response.completed"]
    assert bench.outcomes == [Outcome.COMPLETED]


async def test_a_turn_that_ends_during_the_drain_ends_as_usual(
    transport: Transport, bench: Bench
) -> None:
    bench.upstream.will(streaming(created(), 5.0, completed()))

    client = await bench.turn(transport, until="response.created")
    bench.runtime.admission.close_door(10)
    await bench.runtime.admission.wait_idle()
    await client.wait_for("response.completed")

    assert bench.outcomes == [Outcome.COMPLETED]
    assert trio.current_time() == pytest.approx(5, abs=0.1)
