"""A user who interrupts a turn and asks the next thing in the same moment, and one who steers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.codex.appserver import AppServer, start_app_server
from tests.codex.checks import assert_clean, spoken_inputs
from tests.codex.cli import Codex, with_provider
from tests.codex.events import beginning, completed, item_done, message, text_delta
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane
from tests.codex.upstream import Request, Step, Upstream, answer

pytestmark = pytest.mark.codex

HANG_UP_SECONDS = 1.0
MOMENTS = 40
MOMENT_SECONDS = 0.003
LITE_MODEL = "gpt-6-sol"


def speak_for_ever(request: Request) -> list[Step]:
    return [*beginning(request.response_id, "slowly"), trio.Event()]


def say_nothing(_: Request) -> list[Step]:
    return [trio.Event()]


async def interrupt_once(server: AppServer, upstream: Upstream, thread: str, turn: int) -> Request:
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
    upstream: Upstream,
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
    await assert_clean(turnlane, server.everything())


def speak_briefly(request: Request) -> list[Step]:
    """An answer that takes about as long as the moments of the test below are apart."""
    name, ending = request.response_id, message("soon done")
    words: list[Step] = [text_delta("soon "), 0.005] * 4
    return [0.005, *beginning(name, "soon"), *words, item_done(ending), completed(name, ending)]


async def test_an_interrupt_at_any_moment_leaves_nothing_behind(
    codex: Codex, upstream: Upstream, turnlane: Turnlane, tap: Tap, nursery: trio.Nursery
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


async def steer_once(server: AppServer, upstream: Upstream) -> Request:
    """Say more while the first turn of a new thread speaks; the request that was cut."""
    thread = await server.start_thread()
    upstream.script = speak_for_ever
    turn = await server.begin_turn(thread, "first words")
    request = await upstream.requests.wait_length(1)
    await server.wait_note("item/agentMessage/delta", lambda _: True)

    upstream.script = answer("steered answer")
    await server.steer(thread, turn, "steering words")
    await upstream.wait_ended(request, seconds=HANG_UP_SECONDS)
    assert (await server.wait_turn(turn))["status"] == "completed"
    assert (await server.turn(thread, "last words"))["status"] == "completed"
    return request


async def test_a_steered_turn_goes_on_with_the_new_words(
    binary: Path,
    tmp_path: Path,
    upstream: Upstream,
    turnlane: Turnlane,
    tap: Tap,
    nursery: trio.Nursery,
    websockets: bool,
) -> None:
    root = tmp_path / "client"
    codex = with_provider(binary, root, tap.url, websockets=websockets, model=LITE_MODEL)
    server = await start_app_server(nursery, codex)
    request = await steer_once(server, upstream)

    assert request.hung_up
    cut, steered, last = upstream.requests.entries
    assert steered.input[: len(cut.input)] == cut.input
    assert [steered.says(words) for words in ("steering words", "last words")] == [True, False]
    assert [last.says(words) for words in ("steering words", "last words")] == [True, True]
    assert {seen.headers["x-openai-internal-codex-responses-lite"] for seen in (cut, last)} == {
        "true"
    }
    if websockets:
        assert_interrupted_in_place(tap)
        assert [seen.input for seen in (cut, steered, last)] == spoken_inputs(tap)
    await server.stop()
    await assert_clean(turnlane, server.everything())


def assert_interrupted_in_place(tap: Tap) -> None:
    """One socket; the interrupt names the response, and the next frame continues it."""
    assert len(tap.websockets) == 1
    (interrupt,) = tap.sent("response.interrupt")
    (ended,) = tap.received("response.incomplete")
    assert ended["response"]["id"] == interrupt["response_id"]
    assert ended["response"]["incomplete_details"] == {"reason": "interrupted"}
    _prewarm, _first, steered, _last = tap.sent()
    assert steered["previous_response_id"] == interrupt["response_id"]
    assert len(steered["input"]) == 1
