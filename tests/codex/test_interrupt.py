"""A user who interrupts a turn and asks the next thing in the same moment."""

from __future__ import annotations

import pytest
import trio

from tests.codex.appserver import AppServer, start_app_server
from tests.codex.checks import assert_clean
from tests.codex.cli import Codex
from tests.codex.events import beginning, completed, item_done, message, text_delta
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane
from tests.codex.upstream import Request, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

HANG_UP_SECONDS = 1.0
MOMENTS = 40
MOMENT_SECONDS = 0.003


def speak_for_ever(request: Request) -> list[Step]:
    return [*beginning(request.response_id, "slowly"), trio.Event()]


def say_nothing(_: Request) -> list[Step]:
    return [trio.Event()]


async def interrupt_once(
    server: AppServer, upstream: TurnUpstream, thread: str, turn: int
) -> Request:
    """Interrupt one turn, begin the next at once; the request that was cut."""
    speaks = turn % 2 == 0
    seen, since = len(upstream.requests), len(server.said)
    upstream.script = speak_for_ever if speaks else say_nothing
    interrupted = await server.begin_turn(thread, f"slow {turn}")
    request = await upstream.requests.wait_length(seen + 1)
    if speaks:
        await server.wait_note("item/agentMessage/delta", lambda _: True, since=since)

    upstream.script = answer(f"answer {turn}")
    await server.interrupt(thread, interrupted)
    following = await server.begin_turn(thread, f"next {turn}")
    await upstream.wait_ended(request, seconds=HANG_UP_SECONDS)
    assert request.hung_up
    assert (await server.wait_turn(interrupted, since=since))["status"] == "interrupted"
    ended = await server.wait_turn(following, since=since)
    assert ended["status"] == "completed", ended
    return request


@pytest.mark.parametrize(
    ("websockets", "turns"), [(True, 100), (False, 20)], ids=["websocket", "http"]
)
async def test_the_turn_after_an_interrupt_is_never_refused(
    codex: Codex,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    tap: Tap,
    nursery: trio.Nursery,
    websockets: bool,
    turns: int,
) -> None:
    server = await start_app_server(nursery, codex)
    thread = await server.start_thread()
    cut = [await interrupt_once(server, upstream, thread, turn) for turn in range(turns)]

    assert server.answers()[-1] == f"answer {turns - 1}"
    assert len(upstream.requests) == 2 * turns
    others = [request for request in upstream.requests.entries if request not in cut]
    assert [request.hung_up for request in others] == [False] * turns
    assert all(request.says("turn_aborted") for request in others)
    assert len(tap.websockets) == (turns + 1 if websockets else 0)
    assert tap.received("error") == []
    await server.stop()
    status = await assert_clean(turnlane, server.everything())
    assert (status["turns"]["admitted"], status["turns"]["peak"]) == (2 * turns, 1)


def speak_briefly(request: Request) -> list[Step]:
    """An answer that takes about as long as the moments of the test below are apart."""
    name, ending = request.response_id, message("soon done")
    words: list[Step] = [text_delta("soon "), 0.005] * 4
    return [0.005, *beginning(name, "soon"), *words, item_done(ending), completed(name, ending)]


async def test_an_interrupt_at_any_moment_leaves_nothing_held(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, nursery: trio.Nursery
) -> None:
    server = await start_app_server(nursery, codex)
    thread = await server.start_thread()
    outcomes = set()
    for moment in range(MOMENTS):
        since = len(server.said)
        upstream.script = speak_briefly
        turn = await server.begin_turn(thread, f"brief {moment}")
        await trio.sleep(moment * MOMENT_SECONDS)
        upstream.script = answer(f"answer {moment}")
        await server.interrupt_if_running(thread, turn)
        outcomes.add((await server.wait_turn(turn, since=since))["status"])
        assert (await server.turn(thread, f"next {moment}"))["status"] == "completed"

    assert "interrupted" in outcomes
    assert outcomes <= {"interrupted", "completed"}
    assert server.answers()[-1] == f"answer {MOMENTS - 1}"
    assert tap.received("error") == []
    await server.stop()
    await assert_clean(turnlane, server.everything())
