"""A model service that fails, and a turnlane that is away for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.codex.appserver import AppServer, start_app_server
from tests.codex.checks import assert_clean, assert_nothing_refused
from tests.codex.cli import Codex, with_provider
from tests.codex.events import beginning, completed, item_done, message, refusal
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane, start_turnlane, wait_idle
from tests.codex.upstream import Reply, Request, Script, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

AWAY_SECONDS = 2.0
FAILURE = Reply(status=503, body=refusal("server_error", "the service is unwell"))


def failing(is_unwell: Callable[[Request], bool]) -> Script:
    """A script that fails while `is_unwell` says so, and answers after that."""
    healthy = answer("well again")
    return lambda request: [FAILURE] if is_unwell(request) else healthy(request)


@pytest.mark.parametrize("websockets", [True], ids=["websocket"])
@pytest.mark.parametrize("failures", [1, 3])
async def test_a_failing_service_does_not_cost_the_websocket(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, tap: Tap, failures: int
) -> None:
    upstream.script = failing(lambda _: len(tap.received("error")) < failures)
    run = await codex.ask("try")

    assert (run.code, run.answers) == (0, ["well again"]), run.everything
    errors = tap.received("error")
    assert [error["status"] for error in errors] == [503] * failures
    assert [error["headers"]["retry-after"] for error in errors] == ["2"] * failures
    assert [link.is_websocket for link in tap.links.entries] == [True] * (failures + 1)
    await assert_clean(turnlane, run.everything)


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_service_that_fails_a_few_sends_is_asked_again(
    codex: Codex, upstream: TurnUpstream, turnlane: Turnlane, failures: int
) -> None:
    upstream.script = failing(lambda request: request.number <= failures)
    run = await codex.ask("try")

    assert (run.code, run.answers) == (0, ["well again"]), run.everything
    statuses = [request.status for request in upstream.requests.entries]
    assert statuses == [503] * failures + [200]
    await assert_clean(turnlane, run.everything)


async def test_a_service_that_fails_for_ever_ends_the_client_and_holds_nothing(
    binary: Path,
    tmp_path: Path,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    tap: Tap,
    websockets: bool,
) -> None:
    settings = "stream_max_retries = 1\nrequest_max_retries = 1"
    codex = with_provider(
        binary, tmp_path / "client", tap.url, websockets=websockets, settings=settings
    )
    upstream.script = lambda _: [FAILURE]
    run = await codex.ask("try")

    assert (run.code, run.answers) == (1, [])
    assert run.events[-1]["type"] == "turn.failed"
    assert "503" in run.everything
    assert_nothing_refused(await wait_idle(turnlane))


@pytest.fixture
async def server(
    nursery: trio.Nursery, binary: Path, tmp_path: Path, turnlane: Turnlane
) -> AppServer:
    """An app-server with no tap before turnlane, so that it meets a closed port as it is."""
    codex = with_provider(binary, tmp_path / "client", turnlane.url, websockets=True)
    return await start_app_server(nursery, codex)


async def restart(nursery: trio.Nursery, upstream: TurnUpstream, old: Turnlane) -> Turnlane:
    """Another turnlane in the same home on the same port."""
    return await start_turnlane(nursery, upstream.url, old.output.parent, port=old.port)


async def test_a_restart_between_two_turns_keeps_the_websocket(
    server: AppServer, upstream: TurnUpstream, turnlane: Turnlane, nursery: trio.Nursery
) -> None:
    thread = await server.start_thread()
    assert (await server.turn(thread, "first words"))["status"] == "completed"
    await turnlane.wait_websockets(1)
    assert await turnlane.stop() == 0
    restarted = await restart(nursery, upstream, turnlane)

    assert (await server.turn(thread, "second words"))["status"] == "completed"
    await restarted.wait_websockets(1)
    assert [request.says("first words") for request in upstream.requests.entries] == [True, True]
    await server.stop()
    await assert_clean(restarted, server.everything())
    assert await restarted.stop() == 0


async def test_a_turn_that_begins_while_turnlane_is_away_keeps_the_websocket(
    server: AppServer, upstream: TurnUpstream, turnlane: Turnlane, nursery: trio.Nursery
) -> None:
    thread = await server.start_thread()
    assert (await server.turn(thread, "first words"))["status"] == "completed"
    assert await turnlane.stop() == 0
    turn = await server.begin_turn(thread, "second words")
    await trio.sleep(AWAY_SECONDS)
    restarted = await restart(nursery, upstream, turnlane)

    assert (await server.wait_turn(turn))["status"] == "completed"
    await restarted.wait_websockets(1)
    await server.stop()
    await assert_clean(restarted, server.everything())
    assert await restarted.stop() == 0


async def test_a_turn_that_runs_at_the_stop_is_finished_first(
    server: AppServer, upstream: TurnUpstream, turnlane: Turnlane, nursery: trio.Nursery
) -> None:
    release = trio.Event()
    ending = message("slowly but surely")

    def slow(request: Request) -> list[Step]:
        name = request.response_id
        end = (item_done(ending), completed(name, ending))
        return [*beginning(name, "slowly"), release, *end]

    upstream.script = slow
    thread = await server.start_thread()
    turn = await server.begin_turn(thread, "first words")
    await server.wait_note("item/agentMessage/delta", lambda _: True)
    codes: list[int] = []

    async def stop() -> None:
        codes.append(await turnlane.stop())

    async with trio.open_nursery() as stopping:
        stopping.start_soon(stop)
        await turnlane.wait_draining()
        release.set()
        assert (await server.wait_turn(turn))["status"] == "completed"
    restarted = await restart(nursery, upstream, turnlane)

    assert codes == [0]
    upstream.script = answer("at once")
    assert (await server.turn(thread, "second words"))["status"] == "completed"
    assert len(upstream.requests) == 2
    await restarted.wait_websockets(1)
    await server.stop()
    await assert_clean(restarted, server.everything())
    assert await restarted.stop() == 0


async def test_a_turn_cut_by_a_crash_is_repeated_over_websocket(
    server: AppServer, upstream: TurnUpstream, turnlane: Turnlane, nursery: trio.Nursery
) -> None:
    upstream.script = lambda request: [*beginning(request.response_id, "slowly"), trio.Event()]
    thread = await server.start_thread()
    turn = await server.begin_turn(thread, "first words")
    cut = await upstream.requests.wait_length(1)
    await server.wait_note("item/agentMessage/delta", lambda _: True)
    await turnlane.crash()
    upstream.script = answer("at last")
    await trio.sleep(AWAY_SECONDS)
    restarted = await restart(nursery, upstream, turnlane)

    assert (await server.wait_turn(turn))["status"] == "completed"
    assert [request.hung_up for request in upstream.requests.entries] == [True, False]
    assert upstream.requests.entries[1].input == cut.input
    await restarted.wait_websockets(1)
    await server.stop()
    await assert_clean(restarted, server.everything())
    assert await restarted.stop() == 0
