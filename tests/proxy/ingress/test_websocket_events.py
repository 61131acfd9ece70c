"""Frames to a WebSocket client: which there are, when, and in how many writes."""

import pytest
import trio
from trio.testing import MockClock

from proxy.journal.record import Transport
from tests.testkit.events import completed, created, delta
from tests.testkit.runtime import Bench
from tests.testkit.upstream import Script, answer, streaming


async def test_filler_frames_come_before_the_first_event_and_between_events(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B63: Codex's idle timer counts text frames alone."""
    bench = Bench(nursery, streaming(50.0, created(), 50.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.completed")

    assert socket.types == [
        "keepalive",
        "keepalive",
        "response.created",
        "keepalive",
        "keepalive",
        "response.completed",
    ]
    assert socket.seen_at == pytest.approx([20, 40, 50, 70, 90, 100])


async def test_an_idle_socket_gets_no_filler(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.completed")
    await trio.sleep(3600)

    assert "keepalive" not in socket.types


async def test_events_that_arrive_together_leave_in_one_write(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    together = delta("a") + delta("b") + delta("c")
    bench = Bench(nursery, streaming(created(), 1.0, together, 1.0, completed()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.completed")

    assert socket.writes == [1, 3, 1]


async def test_what_only_headers_say_comes_as_events_before_the_first(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    headers = (
        (b"content-type", b"text/event-stream"),
        (b"x-codex-turn-state", b"state"),
        (b"x-codex-primary-used-percent", b"12.5"),
    )
    bench = Bench(nursery, Script([created(), completed()], headers=headers))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.completed")

    assert socket.types[:3] == ["response.metadata", "codex.rate_limits", "response.created"]
    assert socket.events[0]["headers"] == {"x-codex-turn-state": "state"}


async def test_an_event_that_is_no_utf8_still_makes_a_valid_text_frame(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bad = b'data: {"type":"x","delta":"\xff"}\n\n'
    good = 'data: {"type":"y","delta":"é"}\n\n'.encode()
    bench = Bench(nursery, streaming(created(), bad, good, completed()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.completed")

    assert socket.events[1]["delta"] == "\ufffd"
    assert socket.frames[2] == '{"type":"y","delta":"é"}'.encode()


async def test_a_whole_answer_from_upstream_is_of_no_use_to_a_websocket(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    whole = Script([b"{}"], headers=((b"content-type", b"application/json"),))
    bench = Bench(nursery, whole)

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("error")

    assert (socket.refused.status, socket.refused.code) == (502, "upstream_unusable")
    assert "application/json" in socket.refused.message
    assert len(bench.upstream.sent) == 1
