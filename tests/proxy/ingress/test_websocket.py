"""One WebSocket: what its client may say, and what it hears of it."""

import json

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lifecycle import Limits
from proxy.config.settings import ClientSettings
from proxy.journal.record import Outcome, Transport
from tests.testkit.events import completed, create, created, delta, failed, interrupt, message
from tests.testkit.runtime import Bench
from tests.testkit.upstream import answer, streaming


async def test_twenty_turns_on_one_socket_all_complete(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B52."""
    bench = Bench(nursery, *(answer(f"resp_{i}") for i in range(20)))

    socket = bench.socket()
    for number in range(20):
        await socket.say(create())
        await socket.wait_for("response.completed", number + 1)

    assert bench.outcomes == [Outcome.COMPLETED] * 20
    assert socket.closed_with is None


async def test_a_socket_stays_open_after_a_failed_turn(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B53."""
    bench = Bench(nursery, streaming(created(), failed()), answer("resp_2"))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.failed")
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert bench.outcomes == [Outcome.FAILED, Outcome.COMPLETED]
    assert socket.closed_with is None


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ('{"type":"response.create"', "bad_request"),
        ("[]", "bad_request"),
        ('{"type":"response.create","input":5}', "bad_request"),
        ('{"type":"session.update"}', "unsupported_frame"),
        ("{}", "unsupported_frame"),
        ('{"type":"response.create","stream_id":"a"}', "unsupported_stream_id"),
    ],
)
async def test_a_frame_that_cannot_be_used_gets_an_error_frame_and_the_socket_stays(
    frame: str, reason: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    socket = bench.socket()
    await socket.say(frame)
    await socket.wait_for("error")
    refused = socket.refused
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert (refused.status, refused.reason) == (400, reason)
    assert [record.refusal for record in bench.records] == [reason, None]


async def test_a_binary_frame_gets_an_error_frame_and_the_socket_stays(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer())

    socket = bench.socket()
    await socket.say_binary(b"\x00")
    await socket.wait_for("error")
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert (socket.refused.status, socket.refused.reason) == (400, "unsupported_frame")


async def test_an_error_frame_for_a_bad_frame_comes_between_the_running_turns_events(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(created(), go, completed()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say("junk")
    await socket.wait_for("error")
    go.set()
    await socket.wait_for("response.completed")

    assert socket.types == ["response.created", "error", "response.completed"]
    assert bench.outcomes == [Outcome.REFUSED, Outcome.COMPLETED]


async def test_processed_frames_and_interrupts_of_nothing_are_passed_over(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    go = trio.Event()
    bench = Bench(nursery, streaming(go, created("resp_1"), delta(), trio.Event()))

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
    await socket.say(interrupt("resp_1"))
    await socket.wait_for("response.incomplete")
    await socket.say(interrupt("resp_1"))
    await wait_all_tasks_blocked()

    assert before == []
    assert bench.outcomes == [Outcome.INTERRUPTED]
    assert "error" not in socket.types


async def test_an_interrupt_without_a_name_means_the_running_response(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, streaming(b'data: {"type":"response.created"}\n\n', trio.Event()))

    socket = await bench.turn(Transport.WEBSOCKET)
    await socket.wait_for("response.created")
    await socket.say(interrupt())
    await socket.wait_for("response.incomplete")

    assert bench.outcomes == [Outcome.INTERRUPTED]
    assert bench.turns == 0


async def test_a_frame_larger_than_a_body_may_be_is_refused_in_band(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, answer(), client=ClientSettings(body_bytes=1000))

    socket = bench.socket()
    await socket.say(create(message("é" * 500)))
    await socket.wait_for("error")
    await socket.say(create())
    await socket.wait_for("response.completed")

    assert (socket.refused.status, socket.refused.reason) == (413, "too_large")
    assert len(bench.upstream.sent) == 1


@pytest.mark.parametrize("codex", [False, True])
async def test_a_final_no_reaches_codex_as_the_one_form_whose_words_it_shows(
    codex: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, client=ClientSettings(body_bytes=1000))

    socket = bench.socket(headers=[("x-codex-window-id", "w:0")] if codex else [])
    await socket.say(create(message("x" * 1000)))
    await socket.wait_for("error")

    shape = (socket.refused.status, socket.refused.code)
    assert shape == ((400, "invalid_prompt") if codex else (413, "too_large"))
    assert socket.refused.reason == "too_large"


async def test_a_refusal_names_the_ceiling_and_that_no_provider_was_asked(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Field case B20."""
    bench = Bench(nursery, streaming(created(), trio.Event()), limits=Limits(turns=1))

    first = await bench.turn(Transport.WEBSOCKET, thread="one")
    await first.wait_for("response.created")
    second = await bench.turn(Transport.WEBSOCKET, thread="two")
    await second.wait_for("error")

    assert second.refused.reason == "turns_at_capacity"
    assert "all 1 turns are taken" in second.refused.message
    assert "asked no provider" in second.refused.message
    assert json.loads(second.frames[-1])["error"]["retryable"] is True
    assert len(bench.upstream.sent) == 1
