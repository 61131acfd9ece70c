"""One WebSocket: its handshake, what its client may say and hears, and how a drain closes it."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, delta, failed, interrupt, message
from tests.testkit.runtime import Bench, OpenBench
from tests.testkit.upstream import JSON, STREAM, Script, answer, streaming

# The handshake.


async def test_at_the_limit_of_websockets_a_handshake_is_answered_over_http(
    open_bench: OpenBench,
) -> None:
    bench = open_bench(answer(), limits=Limits(websockets=1))

    first = bench.socket()
    await first.wait_until(lambda: first.accepted)
    second = await bench.socket().wait_returned()
    await first.hang_up()
    await first.wait_returned()
    await bench.turn(Transport.WEBSOCKET, until="response.completed")

    assert not second.accepted
    assert (second.refused.status, second.refused.reason) == (503, "websockets_at_capacity")
    assert second.refused.retry_after == "2"
    assert second.headers["connection"] == "close"
    assert bench.records[0].transport is Transport.WEBSOCKET


# What a client may say.


async def test_twenty_turns_complete_on_one_socket_whichever_way_the_first_ended(
    bench: Bench,
) -> None:
    """Field cases B52 and B53."""
    bench.upstream.will(streaming(created(), failed()), *(answer(f"resp_{i}") for i in range(20)))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.failed")
    for _ in range(20):
        await socket.complete_turn(create())

    assert bench.outcomes == [Outcome.FAILED, *[Outcome.COMPLETED] * 20]
    assert socket.closed_with is None


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ('{"type":"response.create"', "bad_request"),
        ('{"type":"response.create","input":5}', "bad_request"),
        ('{"type":"session.update"}', "unsupported_frame"),
        ('{"type":"response.create","stream_id":"a"}', "unsupported_stream_id"),
        (b"\x00", "unsupported_frame"),
    ],
)
async def test_a_frame_that_cannot_be_used_gets_an_error_frame_and_the_socket_stays(
    frame: str | bytes, reason: str, bench: Bench
) -> None:
    bench.upstream.will(answer())

    socket = bench.socket()
    if isinstance(frame, bytes):
        await socket.say_binary(frame)
    else:
        await socket.say(frame)
    await socket.wait_for("error")
    await socket.complete_turn(create())

    assert (socket.refused.status, socket.refused.reason) == (400, reason)
    assert [record.refusal for record in bench.records] == [reason, None]


@pytest.mark.parametrize("codex", [False, True])
async def test_a_frame_larger_than_a_body_may_be_is_refused_in_band(
    codex: bool, open_bench: OpenBench
) -> None:
    bench = open_bench(answer(), client=ClientSettings(body_bytes=1000))

    socket = bench.socket(headers=[("x-codex-window-id", "w:0")] if codex else [])
    await socket.say_until("error", create(message("é" * 500)))
    await socket.complete_turn(create())

    shape = (socket.refused.status, socket.refused.code)
    assert shape == ((400, "invalid_prompt") if codex else (413, "too_large"))
    assert socket.refused.reason == "too_large"
    assert len(bench.upstream.sent) == 1


async def test_the_error_frame_for_a_bad_frame_comes_between_the_events_of_the_running_turn(
    bench: Bench,
) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(created(), go, completed()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.say_until("error", "junk")
    go.set()
    await socket.wait_for("response.completed")

    assert socket.types == ["response.created", "error", "response.completed"]
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]


# Interrupts.


async def test_an_interrupted_turn_ends_incomplete_at_once(bench: Bench) -> None:
    bench.upstream.will(streaming(created("resp_9"), delta(), trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.output_text.delta")
    await socket.say_until("response.incomplete", interrupt("resp_9"))

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


async def test_processed_frames_and_interrupts_of_nothing_are_ignored(bench: Bench) -> None:
    go = trio.Event()
    bench.upstream.will(streaming(go, created("resp_1"), delta(), trio.Event()))

    socket = bench.socket()
    await socket.say(interrupt())
    await socket.say('{"type":"response.processed"}')
    await socket.say(create())
    await socket.say(interrupt())
    await wait_all_tasks_blocked()
    go.set()
    await socket.wait_for("response.output_text.delta")
    await socket.say(interrupt("resp_0"))
    await wait_all_tasks_blocked()
    before = list(bench.outcomes)
    await socket.say_until("response.incomplete", interrupt("resp_1"))
    await socket.say(interrupt("resp_1"))
    await wait_all_tasks_blocked()

    assert before == []
    assert bench.outcomes == [Outcome.INTERRUPTED]
    assert "error" not in socket.types


async def test_an_interrupt_without_an_id_means_the_running_response(bench: Bench) -> None:
    bench.upstream.will(streaming(b'data: {"type":"response.created"}\n\n', trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.say_until("response.incomplete", interrupt())

    assert bench.outcomes == [Outcome.INTERRUPTED]
    assert bench.turns == 0


# What a client hears.


async def test_fillers_come_before_the_first_event_and_between_events_and_not_when_idle(
    bench: Bench,
) -> None:
    """Field case B63: Codex's idle timer counts text frames alone."""
    bench.upstream.will(streaming(50.0, created(), 50.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.completed")
    await trio.sleep(3600)

    filler = "keepalive"
    assert socket.types == [
        *(filler, filler, "response.created"),
        *(filler, filler, "response.completed"),
    ]
    assert socket.seen_at == pytest.approx([20, 40, 50, 70, 90, 100])


async def test_events_that_arrive_together_leave_in_one_write(bench: Bench) -> None:
    together = delta("a") + delta("b") + delta("c")
    bench.upstream.will(streaming(created(), 1.0, together, 1.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.completed")

    assert socket.writes == [1, 3, 1]


async def test_what_only_headers_say_comes_as_events_before_the_first(bench: Bench) -> None:
    said = ((b"x-codex-turn-state", b"state"), (b"x-codex-primary-used-percent", b"12.5"))
    bench.upstream.will(Script([created(), completed()], headers=(*STREAM, *said)))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.completed")

    assert socket.types[:3] == ["response.metadata", "codex.rate_limits", "response.created"]
    assert socket.events[0]["headers"] == {"x-codex-turn-state": "state"}


async def test_an_answer_that_is_not_a_stream_is_unusable_on_a_websocket(bench: Bench) -> None:
    bench.upstream.will(Script([b"{}"], headers=JSON))

    socket = await bench.turn(Transport.WEBSOCKET, until="error")

    assert (socket.refused.status, socket.refused.code) == (502, "upstream_unusable")
    assert "application/json" in socket.refused.message
    assert len(bench.upstream.sent) == 1


# A drain.


async def test_a_drain_closes_idle_sockets_at_once(bench: Bench) -> None:
    bench.upstream.will(answer())

    fresh = bench.socket()
    used = await bench.turn(Transport.WEBSOCKET, until="response.completed")
    await wait_all_tasks_blocked()
    bench.runtime.admission.close_door(10)
    await fresh.wait_returned()
    await used.wait_returned()

    assert (fresh.closed_with, used.closed_with) == (1001, 1001)
    assert trio.current_time() < 0.1
    assert bench.at_rest


async def test_a_drain_closes_a_busy_socket_after_its_turn_and_refuses_another(
    bench: Bench,
) -> None:
    bench.upstream.will(streaming(created(), 4.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    bench.runtime.admission.close_door(10)
    await socket.say(create())
    await socket.wait_returned()

    assert socket.types == ["response.created", "error", "response.completed"]
    assert (socket.refused.reason, socket.refused.retry_after) == ("draining", "12")
    assert socket.closed_with == 1001
    assert bench.at_rest


async def test_a_drain_waits_for_a_successor_that_was_admitted_before_it(bench: Bench) -> None:
    closing = trio.Event()
    first = Script([created("resp_1"), trio.Event()], closing=closing)
    bench.upstream.will(first, streaming(created("resp_2"), 2.0, completed("resp_2")))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    await socket.say(create())
    await wait_all_tasks_blocked()
    bench.runtime.admission.close_door(10)
    await wait_all_tasks_blocked()
    closing.set()
    await socket.wait_returned()

    assert socket.types[-1] == "response.completed"
    assert socket.closed_with == 1001


async def test_a_prewarm_during_the_drain_is_answered_before_the_close(bench: Bench) -> None:
    bench.upstream.will(streaming(created("resp_1"), trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET, until="response.created")
    bench.runtime.admission.close_door(10)
    await wait_all_tasks_blocked()
    await socket.say(create(generate=False))
    await socket.wait_returned()

    assert socket.types[-1] == "response.completed"
    assert socket.closed_with == 1001
