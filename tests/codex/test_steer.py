"""A user who says more while a turn runs: the lite model is interrupted in place and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.codex.appserver import AppServer, start_app_server
from tests.codex.checks import assert_clean, spoken_inputs, tool_outputs
from tests.codex.cli import Codex, with_provider
from tests.codex.events import beginning, created, item_added, item_done, message, shell, text_delta
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane
from tests.codex.upstream import Request, Script, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

HANG_UP_SECONDS = 1.0


@pytest.fixture
def codex(binary: Path, tmp_path: Path, tap: Tap, websockets: bool) -> Codex:
    root = tmp_path / "client"
    return with_provider(binary, root, tap.url, websockets=websockets, model="gpt-6-sol")


def speak_for_ever(request: Request) -> list[Step]:
    return [*beginning(request.response_id, "slowly"), trio.Event()]


def call_and_speak_for_ever(request: Request) -> list[Step]:
    """A finished tool call, and then a message that never ends."""
    call = item_done(shell("call_1", "echo called"))
    words = (item_added(message("slowly"), 1), text_delta("slowly", 1))
    return [created(request.response_id), call, *words, trio.Event()]


async def steer_once(server: AppServer, upstream: TurnUpstream, script: Script) -> Request:
    """Say more while the first turn of a new thread speaks; the request that was cut."""
    thread = await server.start_thread()
    upstream.script = script
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
    codex: Codex,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    tap: Tap,
    nursery: trio.Nursery,
    websockets: bool,
) -> None:
    server = await start_app_server(nursery, codex)
    request = await steer_once(server, upstream, speak_for_ever)

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


@pytest.mark.parametrize("websockets", [True], ids=["websocket"])
async def test_a_call_that_was_finished_before_the_steering_is_kept(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, nursery: trio.Nursery
) -> None:
    server = await start_app_server(nursery, codex)
    request = await steer_once(server, upstream, call_and_speak_for_ever)

    assert request.hung_up
    _cut, steered, last = upstream.requests.entries
    assert [list(tool_outputs(seen)) for seen in (steered, last)] == [["call_1"], ["call_1"]]
    assert [seen.input for seen in upstream.requests.entries] == spoken_inputs(tap)
    assert len(tap.websockets) == 1
    await server.stop()
    await assert_clean(turnlane, server.everything())
