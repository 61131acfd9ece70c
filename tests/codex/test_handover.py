"""The real Codex while the next turnlane takes over: its turn ends well, it stays on WebSocket."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import trio

from tests.codex.appserver import start_app_server
from tests.codex.checks import assert_clean
from tests.codex.cli import Codex
from tests.codex.events import beginning, completed, item_done, message
from tests.codex.tap import Tap
from tests.codex.turnlane import Turnlane, start_turnlane
from tests.codex.upstream import Request, Step, TurnUpstream, answer

pytestmark = pytest.mark.codex

CLOSED_SECONDS = 10


@pytest.mark.parametrize("websockets", [True], ids=["websocket"])
async def test_a_turn_that_runs_is_finished_and_the_next_ones_go_to_the_next_process(
    codex: Codex,
    upstream: TurnUpstream,
    turnlane: Turnlane,
    tap: Tap,
    nursery: trio.Nursery,
    tmp_path: Path,
) -> None:
    release = trio.Event()
    ending = message("slowly but surely")

    def slow(request: Request) -> list[Step]:
        name = request.response_id
        end = (item_done(ending), completed(name, ending))
        return [*beginning(name, "slowly"), release, *end]

    server = await start_app_server(nursery, codex)
    idle = await server.start_thread()
    assert (await server.turn(idle, "idle words"))["status"] == "completed"
    (idle_link,) = tap.websockets
    upstream.script = slow
    busy = await server.start_thread()
    turn = await server.begin_turn(busy, "first words")
    await server.wait_note("item/agentMessage/delta", lambda note: note["threadId"] == busy)
    before = time.monotonic()
    following = await start_turnlane(
        nursery,
        upstream.url,
        tmp_path / "turnlane",
        port=turnlane.port,
        options=("--take-over",),
    )
    ready_seconds = time.monotonic() - before
    during = await following.status()
    upstream.script = answer("at once")
    with trio.fail_after(CLOSED_SECONDS):
        await idle_link.closed.wait()

    assert (await server.turn(idle, "more idle words"))["status"] == "completed"
    release.set()
    assert (await server.wait_turn(turn))["status"] == "completed"
    turnlane.stopped = True
    assert await turnlane.process.wait() == 0
    assert (await server.turn(busy, "second words"))["status"] == "completed"
    await following.wait_websockets(2)
    await server.stop()

    sys.stdout.write(f"the next process was ready after {ready_seconds:.2f} s\n")
    assert [one["pid"] for one in during["draining"]] == [turnlane.process.pid]
    assert all(link.is_websocket for link in tap.links.entries if "/responses" in link.request_line)
    assert not any(link.request_line.startswith("POST") for link in tap.links.entries)
    assert len(upstream.requests) == 4
    assert upstream.requests.entries[-1].says("first words")
    after = await assert_clean(following, server.everything())
    assert (after["draining"], after["outcomes"].get("completed")) == ([], 2)
    assert await following.stop() == 0
